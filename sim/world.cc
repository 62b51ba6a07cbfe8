// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0

#include "sim/world.h"

#include <algorithm>
#include <tuple>
#include <utility>

#include "sim/agent_process.h"
#include "sim/checks.h"
#include "sim/client.h"
#include "sim/controller_process.h"
#include "sim/disk.h"
#include "sim/engine.h"
#include "sim/faults.h"
#include "sim/network.h"
#include "sim/policy_process.h"
#include "sim/router.h"
#include "sim/timing.h"

namespace refit::sim {

World::World(const Plan& plan, const RunOptions& options) : plan_(plan), options_(options), prng_(plan.seed) {
  retained_ = OneIn(2);
  weights_ = std::make_unique<WeightSet>(plan_, prng_);
  named_.push_back(0);
  for (std::uint32_t slot = 0; slot < plan_.engines; ++slot) {
    slots_.emplace_back(slot);
  }
  faults_ = std::make_unique<Faults>(*this);
  network_ = std::make_unique<Network>(*this);
  checks_ = std::make_unique<Checks>(*this);
  disk_ = std::make_unique<Disk>(*this);
  router_ = std::make_unique<Router>(*this);
  client_ = std::make_unique<Client>(*this);
  traffic_ = std::make_unique<Traffic>(*this);
}

World::~World() = default;

// ---- time, chance, the trace

bool World::Event::After(const Event& other) const {
  return std::tie(when, tie, sequence) > std::tie(other.when, other.tie, other.sequence);
}

Duration World::Between(Duration low, Duration high) {
  const auto width = static_cast<std::uint64_t>((high - low).count());
  return low + Duration(static_cast<Duration::rep>(width == 0 ? 0 : prng_.Below(width)));
}

void World::At(Instant when, std::function<void()> what) {
  queue_.push_back({std::max(when, now_), prng_.Next(), sequence_++, std::move(what)});
  std::push_heap(queue_.begin(), queue_.end(), [](const Event& a, const Event& b) { return a.After(b); });
}

void World::Fold(std::string_view text) {
  FoldWord(text.size());
  std::uint64_t word = 0;
  for (std::size_t i = 0; i < text.size(); ++i) {
    word = word << 8U | static_cast<unsigned char>(text[i]);
    if (i % 8 == 7) {
      FoldWord(std::exchange(word, 0));
    }
  }
  FoldWord(word);
}

void World::AddLine(std::string text) {
  options_.trace->push_back(StrCat((now_ - Instant{}) / Micros(1), " us  ", text));
}

void World::Report(Checker checker, const std::string& what) {
  Note("violation of ", ToString(checker), ": ", what);
  if (!violated_ && options_.on.test(static_cast<std::size_t>(checker))) {
    violated_ = true;
    result_.violations.push_back({checker, now_ - Instant{}, what});
  }
}

// ---- who is there

ControllerProcess* World::controller() const {
  return controllers_.empty() || !controllers_.back()->alive() ? nullptr : controllers_.back().get();
}

AgentProcess* World::agent(SlotIndex slot) const {
  const auto found = agents_.find(slot);
  return found == agents_.end() ? nullptr : found->second;
}

ControllerProcess* World::superseded() const {
  ControllerProcess* last = nullptr;
  for (const auto& process : controllers_) {
    last = process->alive() && process != controllers_.back() ? process.get() : last;
  }
  return last;
}

AgentProcess* World::AgentBeside(SlotIndex slot) const {
  auto found = agents_.upper_bound(slot);
  found = found == agents_.end() ? agents_.begin() : found;
  const bool there = found != agents_.end() && found->first != slot && found->second->alive();
  return there ? found->second : nullptr;
}

PolicyProcess* World::policy(PolicyRank rank) const {
  const auto found = policies_.find(rank);
  return found == policies_.end() ? nullptr : found->second;
}

Engine* World::engine(Incarnation incarnation) const {
  const auto found = engines_.find(incarnation);
  return found == engines_.end() ? nullptr : found->second;
}

Engine& World::StartEngine(SlotIndex slot) {
  checks_->OnStart(slot, engine_lives_);
  const Incarnation incarnation = NewLife();
  Note("engine ", slot, " life ", incarnation.low, " is started");
  engine_lives_.push_back(std::make_unique<Engine>(*this, slot, incarnation));
  engines_[incarnation] = engine_lives_.back().get();
  return *engine_lives_.back();
}

Engine& World::RunningEngine(SlotIndex slot) {
  for (const auto& life : engine_lives_) {
    if (life->slot() == slot && life->alive()) {
      return *life;
    }
  }
  Engine& engine = StartEngine(slot);
  engine.Load(weights_->AddContent());
  return engine;
}

void World::BeginLife(Engine& engine) {
  engine.BeginLife(NewLife());
  engines_[engine.incarnation()] = &engine;
  Note("engine ", engine.slot(), " life ", engine.incarnation().low, " is attached");
}

void World::OnEngineDead(SlotIndex slot, Incarnation incarnation) {
  AgentProcess* const there = agent(slot);
  if (there != nullptr && there->alive()) {
    there->OnEngineDead(incarnation);
  }
}

void World::ToAgent(PolicyProcess& from, SlotIndex slot, std::function<void(AgentProcess&)> what) {
  network_->Send(from.id(), {ProcessKind::kAgent, slot.value()}, [this, slot, what = std::move(what)] {
    AgentProcess* const there = agent(slot);
    if (there != nullptr) {
      there->Run([there, what] { what(*there); });
    }
  });
}

void World::ToPolicy(AgentProcess& from, PolicyRank rank, std::function<void(PolicyProcess&)> what) {
  network_->Send(from.id(), {ProcessKind::kPolicy, rank.value()}, [this, rank, what = std::move(what)] {
    PolicyProcess* const there = policy(rank);
    if (there != nullptr) {
      there->Run([there, what] { what(*there); });
    }
  });
}

// ---- the trainer

// Where sources are kept each has a name; else there is only what the trainer holds now.
std::string World::NewestSource() const { return retained_ ? StrCat("step-", named_.size() - 1) : ""; }

Content World::ContentOf(const std::string& source) const {
  for (std::size_t step = 0; step < named_.size(); ++step) {
    if (source == StrCat("step-", step)) {
      return named_[step];
    }
  }
  return named_.back();
}

void World::StepTrainer() { named_.push_back(weights_->AddContent()); }

// ---- the run

RunResult World::Run() {
  SetUp();
  RunFaults();
  if (!violated_) {
    RunHealed();
  }
  result_.trace_hash = hash_;
  result_.ended = now_ - Instant{};
  result_.requests = client_->requests();
  result_.commits = checks_->commits();
  result_.arrows = checks_->arrows();
  result_.faults_happened = faults_->happened();
  return std::move(result_);
}

bool World::Step() {
  if (queue_.empty() || violated_) {
    return false;
  }
  std::pop_heap(queue_.begin(), queue_.end(), [](const Event& a, const Event& b) { return a.After(b); });
  const Event event = std::move(queue_.back());
  queue_.pop_back();
  now_ = event.when;
  ++result_.steps;
  event.what();
  return true;
}

}  // namespace refit::sim

// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0

#include "sim/engine.h"

#include <algorithm>
#include <span>
#include <utility>

#include "sim/checks.h"
#include "sim/faults.h"
#include "sim/world.h"

namespace refit::sim {

using sync::Answer;
using sync::AnswerKind;
using sync::Operation;
using sync::SessionFamily;

namespace {

sync::Answer Ok() { return {AnswerKind::kOk, {}, {}}; }
sync::Answer Refused(const char* message) { return {AnswerKind::kRefused, message, {}}; }
sync::Answer Nothing(const char* message) { return {AnswerKind::kNone, message, {}}; }

}  // namespace

Engine::Engine(World& world, SlotIndex slot, Incarnation incarnation)
    : Node(world, {ProcessKind::kEngine, slot.value()}),
      slot_(slot),
      incarnation_(incarnation),
      family_(world.plan().family),
      halves_(world.plan().tp_size, std::vector<Content>(2 * world.weights().tensor_count(), 0)) {}

std::optional<Content> Engine::content() const {
  const Content first = halves_.front().front();
  for (const std::vector<Content>& rank : halves_) {
    if (!std::all_of(rank.begin(), rank.end(), [first](Content half) { return half == first; })) {
      return std::nullopt;
    }
  }
  return first;
}

void Engine::Load(Content content) {
  for (std::vector<Content>& rank : halves_) {
    std::fill(rank.begin(), rank.end(), content);
  }
}

void Engine::BeginLife(Incarnation incarnation) {
  incarnation_ = incarnation;
  first_ = content();
}

void Engine::OnKilled() {
  world().Note("engine ", slot_, " life ", incarnation_.low, " is dead");
  for (const std::shared_ptr<Running>& request : std::exchange(requests_, {})) {
    request->done({std::move(request->tokens), false});
  }
  world().OnEngineDead(slot_, incarnation_);
  // Its callers see their connections reset.
  for (const Posted& posted : std::exchange(posted_, {})) {
    Answer(posted, Nothing("connection reset"), std::nullopt);
  }
}

// ---- calls

void Engine::Call(Operation operation, WeightVersion label, Duration deadline, OnAnswer done) {
  Post({operation, label, {}, std::make_shared<OnAnswer>(std::move(done))}, deadline);
}

void Engine::Update(std::vector<RankPayload> ranks, std::optional<WeightVersion> label, Duration deadline,
                    OnAnswer done) {
  Post({Operation::kUpdate, label.value_or(WeightVersion(0)), std::move(ranks),
        std::make_shared<OnAnswer>(std::move(done))},
       deadline);
}

void Engine::Post(Posted posted, Duration deadline) {
  if (!alive()) {
    world().After(world().Between(Micros(20), Micros(200)),
                  [this, posted] { Answer(posted, Nothing("connection refused"), std::nullopt); });
    return;
  }
  world().After(deadline, [this, posted] {
    if (*posted.done) {
      Answer(posted, Nothing("no answer within its deadline"), std::nullopt);
    }
  });
  posted_.push_back(std::move(posted));
  if (!busy_) {
    RunNext();
  }
}

void Engine::RunNext() {
  if (posted_.empty()) {
    busy_ = false;
    return;
  }
  busy_ = true;
  world().After(world().Between(Micros(200), Micros(5000)), [this] {
    Run([this] {
      if (posted_.empty()) {
        return;
      }
      const Posted posted = std::move(posted_.front());
      const std::optional<FaultKind> fault = world().faults().TakeCall(slot_, posted.operation);
      if (fault == FaultKind::kDieInCall) {
        posted_.pop_front();
        posted_.push_front(posted);
        return Kill();
      }
      posted_.pop_front();
      if (posted.operation == Operation::kUpdate) {
        return RunUpdate(posted, fault);
      }
      RunCall(posted, fault);
    });
  });
}

void Engine::RunCall(const Posted& posted, std::optional<FaultKind> fault) {
  world().Note("engine ", slot_, " life ", incarnation_.low, " runs ", ToString(posted.operation));
  if (fault == FaultKind::kRefuseCall) {
    Answer(posted, Refused("refused by plan"), std::nullopt);
  } else if (fault != FaultKind::kLoseCall) {
    const sync::Answer answer = Do(posted);
    Answer(posted, answer, fault);
  }
  if (alive()) {
    RunNext();
  }
}

// Lost: whoever waits learns it at his deadline.
void Engine::Answer(const Posted& posted, const sync::Answer& answer, std::optional<FaultKind> fault) {
  if (!*posted.done || fault == FaultKind::kLoseAnswer) {
    return;
  }
  const OnAnswer done = std::exchange(*posted.done, nullptr);
  done(answer);
}

sync::Answer Engine::Do(const Posted& posted) {
  switch (posted.operation) {
    case Operation::kPause: Pause(); return Ok();
    case Operation::kFlush:
      if (draining_ > 0) {
        --draining_;
        return Refused("requests are pending");  // those that wait for the resume are not
      }
      return Ok();
    case Operation::kBegin:
    case Operation::kEnd: return DoSession(posted.operation);
    case Operation::kLabel: return Ok();
    case Operation::kRelease:
      weights_released_ = true;
      kv_cache_released_ = true;
      return Ok();
    case Operation::kOnloadWeights:
    case Operation::kOnloadKvCache: {
      bool& released = posted.operation == Operation::kOnloadWeights ? weights_released_ : kv_cache_released_;
      if (!released) {
        Kill();
        return Nothing("connection reset");
      }
      released = false;
      return Ok();
    }
    case Operation::kResume:
      paused_ = false;
      world().checks().OnServes(*this);
      for (const std::shared_ptr<Running>& request : requests_) {
        StepRequest(request);
      }
      return Ok();
    case Operation::kUpdate: break;
  }
  return Nothing("not a call");
}

sync::Answer Engine::DoSession(Operation operation) {
  if (family_ == SessionFamily::kA) {
    return {AnswerKind::kNotFound, "Not Found", {}};
  }
  const bool begins = operation == Operation::kBegin;
  if (begins == session_open_) {
    return WrongSessionCall(begins ? "a session is open" : "no session is open");
  }
  session_open_ = begins;
  return Ok();
}

sync::Answer Engine::WrongSessionCall(const char* message) {
  if (family_ == SessionFamily::kB) {
    Kill();
    return Nothing("connection reset");
  }
  return Refused(message);
}

// ---- update: each rank opens its payload, copies one half of every tensor after the other, and lets go.

void Engine::RunUpdate(Posted posted, std::optional<FaultKind> fault) {
  world().Note("engine ", slot_, " life ", incarnation_.low, " runs update");
  if (fault == FaultKind::kRefuseCall) {
    Answer(posted, Refused("refused by plan"), std::nullopt);  // no rank opened its payload
    return RunNext();
  }
  if (fault == FaultKind::kLoseCall) {
    return RunNext();
  }
  if (family_ != SessionFamily::kA && !session_open_) {
    const sync::Answer wrong = WrongSessionCall("update outside a session");
    Answer(posted, wrong, fault);
    return alive() ? RunNext() : void();
  }
  world().checks().OnInstall(*this, posted.ranks);
  const auto left = std::make_shared<std::size_t>(posted.ranks.size());
  for (std::size_t rank = 0; rank < posted.ranks.size(); ++rank) {
    InstallHalf(posted.ranks[rank], rank, 0);
    world().After(world().Between(Micros(100), Micros(3000)), [this, posted, rank, left, fault] {
      Run([this, posted, rank, left, fault] {
        InstallHalf(posted.ranks[rank], rank, 1);
        --posted.ranks[rank].memory->readers;
        world().checks().OnLetGo(*this, rank, posted.ranks[rank]);
        if (--*left == 0) {
          Answer(posted, Ok(), fault);
          RunNext();
        }
      });
    });
  }
}

void Engine::InstallHalf(const RankPayload& payload, std::size_t rank, std::size_t half) {
  const Bytes memory = payload.memory->bytes;
  for (const PayloadTensor& tensor : payload.tensors) {
    const ByteCount size = world().weights().manifest()->size(tensor.index);
    const ByteCount begin = half == 0 ? 0 : size / 2;
    const ByteCount length = half == 0 ? size / 2 : size - size / 2;
    halves_[rank][2 * tensor.index + half] =
        world().weights().Recognise(tensor.index, begin, memory.subspan(tensor.offset + begin, length));
  }
}

// ---- generation

void Engine::Probe(Duration timeout, std::function<void(bool)> done) {
  const auto once = std::make_shared<std::function<void(bool)>>(std::move(done));
  const auto finish = [once](bool healthy) {
    if (const auto say = std::exchange(*once, nullptr)) {
      say(healthy);
    }
  };
  world().After(timeout, [finish] { finish(false); });
  Duration taken = world().Between(Micros(500), Micros(8000));
  if (world().faults().Take(FaultKind::kFailProbe, slot_.value())) {
    taken = timeout + timeout / 2;
  }
  world().After(taken, [this, finish] {
    if (!alive()) {
      return finish(false);
    }
    Run([this, finish] {
      const bool sick = world().faults().During(FaultKind::kNeverHealthy, slot_.value()).has_value();
      finish(!sick && !paused_ && !kv_cache_released_ && !weights_released_);
    });
  });
}

void Engine::Generate(std::size_t tokens, std::function<void(const Generated&)> done) {
  if (!alive()) {
    return done({{}, false});
  }
  const auto request = std::make_shared<Running>(Running{tokens, {}, std::move(done)});
  requests_.push_back(request);
  if (world().faults().During(FaultKind::kNeverHealthy, slot_.value()).has_value()) {
    world().After(Micros(2000), [this, request] { Run([this, request] { EndRequest(request, false); }); });
  } else if (!paused_) {
    StepRequest(request);
  }
}

void Engine::Pause() {
  paused_ = true;
  const std::vector<std::shared_ptr<Running>> aborted = requests_;
  for (const std::shared_ptr<Running>& request : aborted) {
    EndRequest(request, true);
  }
  draining_ = world().OneIn(4) ? 1 : 0;
}

void Engine::StepRequest(const std::shared_ptr<Running>& request) {
  world().After(world().Between(Micros(2000), Micros(30000)), [this, request] {
    Run([this, request] {
      if (paused_ || std::find(requests_.begin(), requests_.end(), request) == requests_.end()) {
        return;
      }
      const std::optional<Content> whole = content();
      request->tokens.push_back({whole.value_or(halves_.front().front()), !whole.has_value()});
      if (request->tokens.size() >= request->wanted) {
        return EndRequest(request, true);
      }
      StepRequest(request);
    });
  });
}

void Engine::EndRequest(const std::shared_ptr<Running>& request, bool succeeded) {
  if (std::erase(requests_, request) > 0) {
    request->done({request->tokens, succeeded});
  }
}

}  // namespace refit::sim

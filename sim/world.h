// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0
//
// The world of one run: one thread, one generator, one queue ordered by time, then by a draw, then by sequence. Every
// process, every fake and every checker lives here and dies with it.

#pragma once

#include <concepts>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "refit/base/ids.h"
#include "refit/base/prng.h"
#include "refit/base/str.h"
#include "refit/base/time.h"
#include "refit/sync/profile.h"
#include "sim/plan.h"
#include "sim/run.h"
#include "sim/weights.h"

namespace refit::sim {

class AgentProcess;
class Checks;
class Client;
class ControllerProcess;
class Disk;
class Engine;
class Faults;
class Network;
class Node;
class PolicyProcess;
class Router;
class Traffic;

constexpr Duration Micros(std::int64_t count) { return std::chrono::microseconds(count); }
constexpr Duration Millis(std::int64_t count) { return std::chrono::milliseconds(count); }

class World {
 public:
  World(const Plan& plan, const RunOptions& options);
  ~World();
  World(const World&) = delete;
  World& operator=(const World&) = delete;

  RunResult Run();

  // ---- time, chance, the trace
  const Plan& plan() const { return plan_; }
  const sync::Profile& profile() const { return plan_.strict ? sync::kStrict : sync::kResilient; }
  Instant now() const { return now_; }
  Duration Between(Duration low, Duration high);
  bool OneIn(std::uint64_t count) { return prng_.Below(count) == 0; }
  std::uint64_t Draw() { return prng_.Next(); }
  void At(Instant when, std::function<void()> what);
  void After(Duration delay, std::function<void()> what) { At(now_ + delay, std::move(what)); }
  template <typename... Parts>
  void Note(const Parts&... parts) {
    (Fold(parts), ...);
    if (options_.trace != nullptr) {
      AddLine(StrCat(parts...));
    }
  }
  void Report(Checker checker, const std::string& what);
  Incarnation NewLife() { return Incarnation{{1, ++lives_}}; }

  // ---- the parts
  WeightSet& weights() { return *weights_; }
  Faults& faults() { return *faults_; }
  Network& network() { return *network_; }
  Disk& disk() { return *disk_; }
  Router& router() { return *router_; }
  Checks& checks() { return *checks_; }
  Client& client() { return *client_; }

  // ---- who is there
  ControllerProcess* controller() const;  // that answers where controllers are looked up; null: nobody
  AgentProcess* agent(SlotIndex slot) const;
  ControllerProcess* superseded() const;            // the last that lives and does not know better; null: none
  AgentProcess* AgentBeside(SlotIndex slot) const;  // of the next slot, where one lives
  PolicyProcess* policy(PolicyRank rank) const;
  Engine* engine(Incarnation incarnation) const;  // whether it lives or not
  bool Retired(SlotIndex slot) const;             // used no more: what its last attempt left stays
  const std::vector<SlotIndex>& slots() const { return slots_; }
  Engine& StartEngine(SlotIndex slot);
  Engine& RunningEngine(SlotIndex slot);  // somebody else's; its owner starts another one where it died
  void BeginLife(Engine& engine);         // an agent attaches to it
  void OnEngineDead(SlotIndex slot, Incarnation incarnation);
  void OnControllerStopped();  // by itself: a successor starts
  // A message of the data path; lost where nobody is there.
  void ToAgent(PolicyProcess& from, SlotIndex slot, std::function<void(AgentProcess&)> what);
  void ToPolicy(AgentProcess& from, PolicyRank rank, std::function<void(PolicyProcess&)> what);

  // ---- the trainer
  bool sources_retained() const { return retained_; }
  std::string NewestSource() const;
  Content ContentOf(const std::string& source) const;
  void StepTrainer();

  bool Inject(const Fault& fault);  // of kinds that happen at once

 private:
  struct Event {
    Instant when;
    std::uint64_t tie = 0;
    std::uint64_t sequence = 0;
    std::function<void()> what;
    bool After(const Event& other) const;
  };

  void FoldWord(std::uint64_t word) { hash_ = (hash_ ^ word) * 0x100000001b3U ^ (hash_ >> 32U); }
  void Fold(std::string_view text);
  void Fold(const char* text) { Fold(std::string_view(text)); }
  void Fold(const std::string& text) { Fold(std::string_view(text)); }
  template <std::integral T>
  void Fold(T number) {
    FoldWord(static_cast<std::uint64_t>(number));
  }
  template <typename Tag, typename Rep>
  void Fold(StrongInt<Tag, Rep> id) {
    FoldWord(static_cast<std::uint64_t>(id.value()));
  }
  void AddLine(std::string text);

  void SetUp();
  void StartController();
  void StartAgent(SlotIndex slot);
  void StartPolicy(PolicyRank rank);
  void RestartLater(Process who, Duration delay);
  void AnnounceController();
  bool KillAgent(SlotIndex slot);
  bool KillPolicy(PolicyRank rank);
  bool KillController();
  bool FreezeController(Duration lasts);
  bool FreezeNode(Node& node, Duration lasts);
  bool AddSlot(SlotIndex slot);
  bool RemoveSlot(SlotIndex slot);
  bool ChangeWeights();
  std::vector<ControllerProcess*> LiveControllers() const;
  void AskHealed(Instant until);
  void PollSettled(Instant poll_until, Instant until);
  bool AllRetired() const;
  void CheckAtRest() const;
  std::string WhyUnsettled(SlotIndex slot) const;  // empty: it is as it should be
  bool Step();
  void RunFaults();
  void RunHealed();
  void HealAll();

  const Plan plan_;
  const RunOptions options_;
  Prng prng_;
  Instant now_{};
  std::vector<Event> queue_;
  std::uint64_t sequence_ = 0;
  std::uint64_t hash_ = 0xcbf29ce484222325U;
  std::uint64_t lives_ = 0;
  RunResult result_;
  bool violated_ = false;
  bool retained_ = false;
  bool all_answered_ = false;  // of the requests under faults
  bool settled_ = false;
  std::uint32_t healed_syncs_ = 0;
  std::uint32_t failed_syncs_ = 0;

  std::unique_ptr<WeightSet> weights_;
  std::vector<Content> named_;  // what each source's name means
  std::unique_ptr<Faults> faults_;
  std::unique_ptr<Network> network_;
  std::unique_ptr<Disk> disk_;
  std::unique_ptr<Router> router_;
  std::unique_ptr<Checks> checks_;
  std::unique_ptr<Client> client_;
  std::unique_ptr<Traffic> traffic_;
  // All lives there ever were; the last of each place is the current one.
  std::vector<std::unique_ptr<ControllerProcess>> controllers_;
  std::vector<std::unique_ptr<AgentProcess>> agent_lives_;
  std::vector<std::unique_ptr<PolicyProcess>> policy_lives_;
  std::vector<std::unique_ptr<Engine>> engine_lives_;
  std::map<SlotIndex, AgentProcess*> agents_;
  std::map<PolicyRank, PolicyProcess*> policies_;
  std::map<Incarnation, Engine*> engines_;
  std::vector<SlotIndex> slots_;
  std::vector<SlotIndex> removed_;
};

}  // namespace refit::sim

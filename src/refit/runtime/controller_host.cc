// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0

#include "refit/runtime/controller_host.h"

#include <algorithm>
#include <atomic>
#include <map>
#include <set>
#include <thread>
#include <utility>
#include <variant>

#include "refit/base/str.h"
#include "refit/control/controller.h"
#include "refit/engine/process/port_list.h"
#include "refit/exec/clock.h"
#include "refit/exec/mailbox.h"
#include "refit/exec/random.h"
#include "refit/exec/watched.h"
#include "refit/observe/log.h"
#include "refit/rpc/controller_rpc.h"
#include "refit/rpc/policy_rpc.h"
#include "refit/runtime/answer_desk.h"
#include "refit/runtime/engine_errands.h"
#include "refit/runtime/journal_writer.h"
#include "refit/runtime/peer_table.h"
#include "refit/runtime/read_history.h"
#include "refit/runtime/reply_desk.h"
#include "refit/runtime/span_log.h"
#include "refit/runtime/takeover.h"
#include "refit/runtime/verifier.h"

namespace refit::runtime {
namespace {

constexpr std::size_t kMailboxCapacity = 4096;
constexpr Duration kWatchInterval = std::chrono::milliseconds(100);  // of the connections to policy workers
constexpr Duration kAppendDeadline = std::chrono::seconds(10);
constexpr Duration kReturnDeadline = std::chrono::seconds(10);  // of an engine that the journal names
constexpr Duration kTermCheckInterval = std::chrono::seconds(1);
constexpr Duration kCommandBudget = std::chrono::seconds(10);
// RX-QUAR-04. The window is shorter than as many launches as fill the budget: a slot whose agent does not come is
// waited for and never given up; one whose engines keep failing soon is.
constexpr std::uint32_t kMaxRestarts = 3;
constexpr Duration kFirstBackoff = std::chrono::seconds(1);
constexpr Duration kMaxBackoff = std::chrono::seconds(60);
constexpr Duration kProgressInterval = std::chrono::milliseconds(100);
constexpr Duration kProgressDeadline = std::chrono::milliseconds(500);
constexpr Duration kHistoryDeadline = std::chrono::seconds(10);

std::string LaneOf(SlotIndex slot) { return StrCat("engine ", slot); }
std::string LaneOf(PolicyRank rank) { return StrCat("policy ", rank); }

class Host final : public ControllerHost, public rpc::ControllerHandler {
 public:
  Host(ControllerHostOptions options, Reign reign)
      : options_(std::move(options)),
        run_(reign.run),
        term_(reign.term),
        recovered_(std::move(reign.recovered)),
        machine_(MachineOptions(), recovered_.has_value() ? &*recovered_ : nullptr),
        journal_(std::move(reign.store), term_, [this](control::ControllerEvent event) { Post(std::move(event)); }) {}
  ~Host() override {
    mailbox_.Close();
    if (loop_.joinable()) {
      loop_.join();
    }
    server_.reset();
    // Whose calls still end, and say so in the tables.
    const auto agents = agents_.With([](Agents::Peers& peers) { return std::exchange(peers, {}); });
    const auto policies = policies_.With([](Policies::Peers& peers) { return std::exchange(peers, {}); });
  }

  Status Begin() {
    Publish();
    REFIT_RETURN_IF_ERROR(OpenRouter());
    REFIT_ASSIGN_OR_RETURN(server_, rpc::ServeController(options_.listen, *this));
    journal_.Announce(server_->address());
    loop_ = std::thread([this] { Loop(); });
    return OkStatus();
  }
  const std::string& address() const override { return server_->address(); }
  std::string router_url() const override { return router_ == nullptr ? "" : router_->url(); }

  // ---- rpc threads
  Result<rpc::Membership> RegisterAgent(const rpc::AgentRegistration& registration) override {
    REFIT_RETURN_IF_ERROR(CheckSlot(registration.slot));
    if (!agents_.Join(registration.slot, registration)) {
      return membership();  // it says every so often that it is here
    }
    const sync::EngineMember member{.slot = registration.slot,
                                    .incarnation = registration.incarnation,
                                    .tp_size = registration.tp_size,
                                    .residue = sync::Residue::Old(WeightVersion(0)),
                                    .attached = registration.attached};
    if (!registration.incarnation.is_zero()) {
      REFIT_RETURN_IF_ERROR(mailbox_.Push(control::AgentRegistered{member}));
      observe::LogInfo(StrCat("engine ", registration.slot, " registered: ", registration.engine_url));
    }
    errands_.OnAgent(member);
    return membership();
  }

  Result<rpc::Membership> RegisterPolicy(const rpc::PolicyRegistration& registration) override {
    const auto& ranks = options_.policy_ranks;
    if (std::find(ranks.begin(), ranks.end(), registration.rank) == ranks.end()) {
      return NotFound(StrCat("policy rank ", registration.rank, " is not in the configuration"),
                      "start the worker with a rank that `policies` lists");
    }
    if (!policies_.Join(registration.rank, registration)) {
      return membership();
    }
    REFIT_RETURN_IF_ERROR(mailbox_.Push(control::PolicyRegistered{{.rank = registration.rank,
                                                                   .incarnation = registration.incarnation,
                                                                   .address = registration.address,
                                                                   .retains = true}}));
    observe::LogInfo(StrCat("policy worker ", registration.rank, " registered: ", registration.source));
    return membership();
  }

  void AgentGone(const rpc::AgentEnd& end) override {
    Post(control::AgentGone{end.slot, end.incarnation, end.status, end.confirmed_dead, end.died_in_update});
  }

  rpc::SyncReport Sync(const rpc::SyncRequest& request, const rpc::ProgressSink& progress) override {
    const auto ticket = syncs_.Open(request.request_id);
    Status status = mailbox_.Push(control::SyncRequested{request.request_id, request.source, request.budget});
    const Instant deadline = exec::Now() + request.budget + kReplyMargin;
    while (status.ok()) {
      if (auto report = ticket->Pop(std::min(deadline, exec::Now() + kProgressInterval))) {
        report->source = request.source;
        if (report->status.ok()) {
          verifier_.Remember(report->version, request.source);
        }
        if (report->status.ok() && options_.verify == VerifyWhen::kAlways) {
          verifier_.Learn(report->version, HashingsOf(*report), PolicyForHashes(), options_.verify_deadline);
          Post(control::HashesTaken{});
        }
        return *std::move(report);
      }
      if (mailbox_.closed()) {  // its successor has the answer, or makes it
        status = Aborted("IN_DOUBT: this controller is being stopped", "ask again with the same request id");
      } else if (exec::Now() >= deadline) {
        status = DeadlineExceeded(StrCat("sync ", request.request_id, " gave no outcome within its budget"));
      } else {
        progress(Progress());
      }
    }
    syncs_.Close(ticket);
    rpc::SyncReport report;
    report.request_id = request.request_id;
    report.source = request.source;
    report.status = status;
    return report;
  }

  rpc::FleetReport GetStatus() override {
    rpc::FleetReport report = snapshot_.With([](rpc::FleetReport& current) { return current; });
    const Agents::Peers agents = agents_.All();
    for (rpc::SlotReport& slot : report.slots) {
      const auto agent = agents.find(slot.slot);
      if (agent != agents.end() && agent->second.registration.incarnation == slot.incarnation) {
        slot.engine_url = agent->second.registration.engine_url;
        slot.engine_version = agent->second.registration.engine_version;
        slot.engine_pid = agent->second.registration.engine_pid;
      }
    }
    for (const auto& [rank, policy] : policies_.All()) {
      const rpc::PolicyRegistration& registration = policy.registration;
      report.policies.push_back(
          {rank, policy.reached ? registration.incarnation : Incarnation{}, registration.address, registration.source});
    }
    const Instant began(Duration(transferring_since_.load()));
    report.transfer_seconds = began > Instant{} ? ToSeconds(exec::Now() - began) : 0;
    report.bytes_total = bytes_total_;
    for (const auto& [slot, bytes] : Delivered()) {
      report.bytes_delivered += bytes;
      for (rpc::SlotReport& one : report.slots) {
        one.bytes_delivered = one.slot == slot ? bytes : one.bytes_delivered;
      }
    }
    if (router_ != nullptr) {
      report.router = router_->report();
    }
    return report;
  }

  rpc::VerifyReport Verify(const rpc::VerifyRequest& request) override {
    const rpc::FleetReport fleet = GetStatus();
    std::vector<VerifyTarget> targets;
    const Agents::Peers agents = agents_.All();
    for (const rpc::SlotReport& slot : fleet.slots) {
      if (request.slot >= 0 ? slot.slot.value() != request.slot : !slot.in_service) {
        continue;
      }
      const auto agent = agents.find(slot.slot);
      VerifyTarget& target = targets.emplace_back(VerifyTarget{.slot = slot, .agent = nullptr});
      if (agent != agents.end()) {
        target.hash_kind = agent->second.registration.hash_kind;
        target.agent = agent->second.client;
      }
    }
    if (targets.empty()) {
      rpc::VerifyReport report;
      report.status = request.slot < 0
                          ? FailedPrecondition("no engine is in service", "see `refit status`")
                          : NotFound(StrCat("the fleet has no engine slot ", request.slot), "see `refit status`");
      return report;
    }
    rpc::VerifyReport report =
        verifier_.Verify(fleet.committed, request.model, targets, PolicyForHashes(), request.budget);
    if (request.model.empty()) {  // else they were compared with something that nobody published
      Post(ComparedIn(report, targets));
    }
    return report;
  }

  Status Shutdown(Duration budget) override {
    const std::string id = ToHex(exec::RandomId());
    return Ask(id, control::ShutdownRequested{id}, budget, "not every agent has closed its links in time");
  }

  Result<control::History> GetHistory() override {
    return options_.state_directory.empty() ? journal_.ReadHistory(kHistoryDeadline)
                                            : ReadHistory(options_.state_directory);
  }

  Status ActOnSlot(const rpc::SlotRequest& request) override {
    const std::string id = ToHex(exec::RandomId());
    return Ask(id, control::SlotRequested{id, request.action, request.slot, request.grace}, request.budget,
               StrCat("engine slot ", request.slot, " goes on with it, and is not there yet"));
  }

 private:
  using Agents = PeerTable<SlotIndex, rpc::AgentRegistration, rpc::AgentClient>;
  using Policies = PeerTable<PolicyRank, rpc::PolicyRegistration, rpc::PolicyClient>;

  // The machine knows which slots there are: some are added to those of the configuration, others are retired.
  Status CheckSlot(SlotIndex slot) {
    const std::string state = snapshot_.With([slot](const rpc::FleetReport& current) {
      const auto found = std::find_if(current.slots.begin(), current.slots.end(),
                                      [slot](const rpc::SlotReport& one) { return one.slot == slot; });
      return found == current.slots.end() ? std::string() : found->state;
    });
    if (state.empty()) {
      return NotFound(
          StrCat("engine slot ", slot, " is not in the configuration, nor was it added"),
          StrCat("start the agent with a slot that `engines` lists, or `refit engine add ", slot, "` first"));
    }
    return state != fleet::ToString(fleet::SlotState::kRetired)
               ? OkStatus()
               : NotFound(StrCat("engine slot ", slot, " is retired, and its number is never used again in a run"),
                          "`refit engine add` another number");
  }

  // Of the machine, one word.
  Status Ask(const std::string& id, control::ControllerEvent event, Duration budget, std::string_view late) {
    const auto ticket = words_.Open(id);
    Status status = mailbox_.Push(std::move(event));
    if (status.ok()) {
      status = ticket->Pop(exec::Now() + budget).value_or(DeadlineExceeded(std::string(late), "see `refit status`"));
    }
    words_.Close(ticket);
    return status;
  }

  rpc::Membership membership() const {
    return {run_, term_, std::string(options_.profile.name), options_.use_fault_tolerance};
  }

  Status OpenRouter() {
    if (!options_.router.has_value()) {
      return OkStatus();
    }
    const auto find_url = [this](SlotIndex slot, Incarnation incarnation) {
      return agents_.With([&](const Agents::Peers& agents) {
        const auto agent = agents.find(slot);
        const bool known = agent != agents.end() && agent->second.registration.incarnation == incarnation;
        return known ? agent->second.registration.engine_url : std::string();
      });
    };
    const auto post = [this](control::ControllerEvent event) { Post(std::move(event)); };
    REFIT_ASSIGN_OR_RETURN(router_,
                           RouterDesk::Open(*options_.router, engine::process::PortListPath(run_), {find_url, post}));
    return OkStatus();
  }

  control::ControllerOptions MachineOptions() const {
    control::ControllerOptions machine;
    machine.run = run_;
    machine.term = term_;
    machine.profile = options_.profile;
    machine.slots = options_.slots;
    machine.policy_ranks = options_.policy_ranks;
    machine.keep_lease = options_.verify == VerifyWhen::kAlways;
    machine.launch_budget = kReturnDeadline;
    machine.append_deadline = kAppendDeadline;
    machine.stall_deadline = options_.stall_deadline;
    machine.min_rate = options_.min_rate;
    machine.term_check_interval = kTermCheckInterval;
    machine.command_budget = kCommandBudget;
    if (options_.router.has_value()) {
      machine.use_router = true;
      machine.router.add_settles = options_.router->command.worker_startup_timeout;
    }
    if (options_.use_fault_tolerance) {
      machine.use_fault_tolerance = true;
      machine.health = options_.health;
      machine.launch_budget = options_.launch_deadline + kReplyMargin;
      machine.restarts = {.max_restarts = kMaxRestarts,
                          .window = 2 * machine.launch_budget,
                          .first_backoff = kFirstBackoff,
                          .max_backoff = kMaxBackoff};
      machine.catch_up_budget = options_.catch_up_deadline;
      machine.seed = run_.low;
    }
    return machine;
  }

  // ---- the loop
  void Loop() {
    {
      control::ControllerEffects effects;
      machine_.Start(exec::Now(), effects);
      CarryOut(effects);
    }
    while (!mailbox_.closed()) {
      control::ControllerEffects effects;
      const auto event = mailbox_.Pop(std::min(machine_.next_deadline(), exec::Now() + kWatchInterval));
      const Instant now = exec::Now();
      for (const control::PolicyGone& gone : LostPolicies()) {  // first: what happened since may be its doing
        machine_.Handle(gone, now, effects);
      }
      if (event.has_value()) {
        Note(*event, now);
        machine_.Handle(*event, now, effects);
      } else if (now >= machine_.next_deadline()) {
        machine_.HandleDeadline(now, effects);
      }
      Publish();  // first: whoever gets an answer and asks for the status or a verification finds what it was told
      CarryOut(effects);
      if (!effects.empty()) {
        Publish();  // what was sent shows in the phase
      }
    }
  }

  // Whoever lives registers again within a moment.
  std::vector<control::PolicyGone> LostPolicies() {
    return policies_.With([](Policies::Peers& policies) {
      std::vector<control::PolicyGone> lost;
      for (auto& [rank, policy] : policies) {
        if (policy.reached && policy.client->ConnectionLost()) {
          policy.reached = false;
          lost.push_back({rank, policy.registration.incarnation,
                          Unavailable(StrCat(LaneOf(rank), " is gone: its connection broke"), "see its log")});
        }
      }
      return lost;
    });
  }

  void CarryOut(control::ControllerEffects& effects) {
    for (control::ControllerEffect& effect : effects) {
      std::visit([this](auto& one) { Carry(one); }, effect);
    }
  }

  void Note(const control::ControllerEvent& event, Instant now) {
    if (const auto* session = std::get_if<sync::SessionEvent>(&event)) {
      if (const auto* agent = std::get_if<sync::AgentReplied>(session)) {
        spans_.End(LaneOf(agent->slot), agent->reply.stamp.seq, now);
      } else if (const auto* policy = std::get_if<sync::PolicyReplied>(session)) {
        spans_.End(LaneOf(policy->rank), policy->reply.stamp.seq, now);
      }
    } else if (std::holds_alternative<control::SyncRequested>(event) && machine_.phase() == sync::SessionPhase::kIdle) {
      spans_.Start(now);
      bytes_total_ = 0;
    }
  }

  void Carry(sync::SendToAgent& effect) {
    const sync::AgentCommand& command = effect.command;
    const SlotIndex slot = effect.slot;
    const auto agent = agents_.Find(slot);
    if (command.kind == sync::AgentCommandKind::kAttempt && command.manifest != nullptr) {
      expected_[slot] = 0;
      for (const sync::StreamSource& stream : command.streams) {
        bytes_total_ += command.manifest->total_size() * stream.tp_ranks.size();
        expected_[slot] += command.manifest->total_size() * stream.tp_ranks.size();
      }
    }
    spans_.Begin(LaneOf(slot), command.stamp.seq, sync::ToString(command.kind), exec::Now());
    if (agent == nullptr) {
      Post(sync::SessionEvent(
          sync::AgentLost{slot, command.stamp.incarnation, Unavailable(StrCat(LaneOf(slot), " is gone"))}));
      return;
    }
    agent->Execute(command, command.budget + 2 * kReplyMargin,
                   [this, slot, incarnation = command.stamp.incarnation](Result<sync::AgentReply> reply) {
                     if (reply.has_value()) {
                       Post(sync::SessionEvent(sync::AgentReplied{slot, *std::move(reply)}));
                     } else {
                       agents_.OnSilence(slot);
                       Post(sync::SessionEvent(sync::AgentLost{slot, incarnation, reply.status()}));
                     }
                   });
  }

  void Carry(sync::SendToPolicy& effect) {
    const sync::PolicyCommand& command = effect.command;
    const PolicyRank rank = effect.rank;
    const auto policy = policies_.Find(rank);
    spans_.Begin(LaneOf(rank), command.stamp.seq, sync::ToString(command.kind), exec::Now());
    if (policy == nullptr) {
      Post(sync::SessionEvent(sync::PolicyLost{rank, Unavailable(StrCat(LaneOf(rank), " is gone"))}));
      return;
    }
    policy->Execute(command, command.budget + 2 * kReplyMargin, [this, rank](Result<sync::PolicyReply> reply) {
      if (reply.has_value()) {
        Post(sync::SessionEvent(sync::PolicyReplied{rank, *std::move(reply)}));
      } else {
        policies_.OnSilence(rank);
        Post(sync::SessionEvent(sync::PolicyLost{rank, reply.status()}));
      }
    });
  }

  void Carry(const control::Append& effect) {
    observe::LogInfo(control::ToString(effect.record));
    journal_.Append(effect);
  }
  void Carry(const control::CheckTerm&) { journal_.CheckTerm(); }

  void Carry(const control::SlotChanged& effect) {
    observe::LogInfo(StrCat(LaneOf(effect.slot), " is ", fleet::ToString(effect.arrow.to),
                            effect.reason.empty() ? "" : StrCat(": ", effect.reason)));
  }

  void Carry(const control::Stop& effect) {
    observe::LogError(StrCat("this controller may not act any more: ", effect.status.ToString()));
    mailbox_.Close();
    if (options_.on_stop) {
      options_.on_stop(effect.exit_code);
    }
  }

  void Carry(const control::LaunchEngine& effect) { errands_.Carry(effect); }
  void Carry(const control::ShutDownEngine& effect) { errands_.Carry(effect); }
  void Carry(const control::KillEngine& effect) { errands_.Carry(effect); }
  void Carry(const control::ProbeEngine& effect) { errands_.Carry(effect); }
  void Carry(const control::DrainEngine& effect) { errands_.Carry(effect); }
  void Carry(const control::ShutdownAnswered& effect) { words_.Tell(effect.request_id, effect.status); }
  void Carry(const control::SlotAnswered& effect) { words_.Tell(effect.request_id, effect.status); }
  void Carry(const control::RouterCall& effect) { router_->Carry(effect); }

  void Carry(const control::SyncAnswered& effect) {
    const rpc::SyncReport report = MakeReport(effect);
    if (!report.status.ok()) {
      observe::LogWarning(StrCat("sync ", effect.request_id, ": ", report.status.ToString()));
    }
    syncs_.Tell(effect.request_id, report);
  }

  rpc::SyncReport MakeReport(const control::SyncAnswered& effect) {
    rpc::SyncReport report;
    report.request_id = effect.request_id;
    report.status = effect.status;
    if (!effect.outcome.has_value()) {
      report.latched = machine_.latch().has_value();
      AddRecorded(report);
      return report;
    }
    const sync::Outcome& outcome = *effect.outcome;
    report.version = outcome.version;
    report.committed = outcome.committed;
    report.latched = outcome.latch;
    report.digest = outcome.digest;
    report.published = outcome.published;
    report.notes = outcome.notes;
    report.spans = spans_.Finish(exec::Now());
    Instant last{};
    for (const sync::EngineOutcome& engine : outcome.engines) {
      const bool resumed = engine.resume_answered > engine.pause_sent && engine.pause_sent > Instant{};
      last = std::max(last, engine.resume_answered);
      report.engines.push_back({.slot = engine.slot,
                                .incarnation = engine.incarnation,
                                .status = engine.status,
                                .residue = engine.residue,
                                .serving = engine.serving,
                                .killed = engine.killed,
                                .totals = engine.totals,
                                .stall_seconds = resumed ? ToSeconds(engine.resume_answered - engine.pause_sent) : 0});
    }
    report.seconds = ToSeconds((last > spans_.origin() ? last : exec::Now()) - spans_.origin());
    return report;
  }

  // What a controller before this one had decided for that request (RX-ONCE-01).
  void AddRecorded(rpc::SyncReport& report) const {
    if (!recovered_.has_value() || !report.status.ok()) {
      return;
    }
    for (const auto& [version, commit] : recovered_->commits) {
      if (commit.request_id == report.request_id) {
        report.version = version;
        report.committed = true;
        report.digest = commit.digest;
      }
    }
  }

  void Publish() {
    rpc::FleetReport report;
    report.run = run_;
    report.term = term_;
    report.profile = options_.profile.name;
    const bool binds = machine_.phase() == sync::SessionPhase::kAttempting &&
                       spans_.running(sync::ToString(sync::AgentCommandKind::kBind));
    report.phase = binds ? "binding" : sync::ToString(machine_.phase());
    const bool transferring = machine_.phase() == sync::SessionPhase::kTransferring;
    if (!transferring || transferring_since_ == 0) {
      transferring_since_ = transferring ? exec::Now().time_since_epoch().count() : 0;
    }
    if (machine_.phase() == sync::SessionPhase::kIdle) {
      expected_.clear();
    }
    report.committed = machine_.committed();
    report.stale = machine_.stale();
    report.latch = machine_.latch().value_or(OkStatus());
    for (const control::SlotView& slot : machine_.slots()) {
      report.slots.push_back({.slot = slot.slot,
                              .incarnation = slot.incarnation.value_or(Incarnation{}),
                              .engine_url = {},
                              .engine_version = {},
                              .engine_pid = 0,
                              .tp_size = slot.tp_size,
                              .residue = slot.residue.value_or(sync::Residue::Unknown()),
                              .serving = slot.serving,
                              .version = slot.version,
                              .last_error = slot.last_error,
                              .state = std::string(fleet::ToString(slot.state)),
                              .service = slot.service,
                              .in_service = slot.in_service,
                              .doing = spans_.running_in(LaneOf(slot.slot)),
                              .bytes_total = transferring ? expected_[slot.slot] : 0});
    }
    snapshot_.With([&report](rpc::FleetReport& current) { current = std::move(report); });
  }

  rpc::SyncProgress Progress() {
    rpc::SyncProgress progress;
    progress.phase = snapshot_.With([](rpc::FleetReport& current) { return current.phase; });
    progress.bytes_total = bytes_total_;
    for (const auto& [slot, bytes] : Delivered()) {
      progress.bytes_delivered += bytes;
    }
    return progress;
  }

  // By whoever takes part in the running transfer, over ranks.
  std::map<SlotIndex, ByteCount> Delivered() {
    std::map<SlotIndex, ByteCount> delivered;
    const auto takes_part = snapshot_.With([](const rpc::FleetReport& current) {
      std::set<SlotIndex> slots;
      for (const rpc::SlotReport& slot : current.slots) {
        if (slot.bytes_total > 0) {
          slots.insert(slot.slot);
        }
      }
      return slots;
    });
    for (const auto& [slot, agent] : agents_.All()) {
      if (!takes_part.contains(slot) || agent.client == nullptr) {
        continue;
      }
      if (const auto bytes = agent.client->BytesDelivered(kProgressDeadline); bytes.has_value()) {
        delivered[slot] = *bytes;
        Post(sync::SessionEvent(sync::Delivered{slot, agent.registration.incarnation, *bytes}));
      }
    }
    return delivered;
  }

  // Every policy rank holds the same set; the lowest one computes.
  std::shared_ptr<rpc::PolicyClient> PolicyForHashes() {
    const Policies::Peers policies = policies_.All();
    return policies.empty() ? nullptr : policies.begin()->second.client;
  }

  std::set<weights::Hashing> HashingsOf(const rpc::SyncReport& report) {
    std::set<weights::Hashing> hashings;
    for (const auto& [slot, agent] : agents_.All()) {
      const bool serves = std::any_of(report.engines.begin(), report.engines.end(), [slot = slot](const auto& engine) {
        return engine.slot == slot && engine.serving;
      });
      if (serves) {
        hashings.insert({agent.registration.tp_size, agent.registration.hash_kind});
      }
    }
    return hashings;
  }

  void Post(control::ControllerEvent event) {
    if (const Status status = mailbox_.Push(std::move(event)); !status.ok() && !mailbox_.closed()) {
      observe::LogError(StrCat("controller: ", status.ToString()));
    }
  }

  const ControllerHostOptions options_;
  const RunId run_;
  const Term term_;
  const std::optional<control::JournalState> recovered_;
  control::Controller machine_;                        // the loop's
  SpanLog spans_;                                      // the loop's
  std::map<SlotIndex, ByteCount> expected_;            // the loop's: bytes of the last attempt, over ranks
  std::atomic<Duration::rep> transferring_since_ = 0;  // 0: nothing moves
  std::atomic<ByteCount> bytes_total_ = 0;
  Verifier verifier_;
  exec::Mailbox<control::ControllerEvent> mailbox_{kMailboxCapacity};
  Agents agents_{ClientOf::kProcess};
  Policies policies_{ClientOf::kLife};
  AnswerDesk<rpc::SyncReport> syncs_;
  AnswerDesk<Status> words_;  // of shutdowns, and of slots
  exec::Watched<rpc::FleetReport> snapshot_;
  EngineErrands errands_{run_,
                         term_,
                         options_.health.timeout,
                         {.find = [this](SlotIndex slot) { return agents_.Find(slot); },
                          .on_silence = [this](SlotIndex slot) { agents_.OnSilence(slot); },
                          .post = [this](control::ControllerEvent event) { Post(std::move(event)); }}};
  std::unique_ptr<RouterDesk> router_;  // null: the job has none
  std::unique_ptr<rpc::Server> server_;
  JournalWriter journal_;
  std::thread loop_;
};

}  // namespace

Result<std::unique_ptr<ControllerHost>> ControllerHost::Start(ControllerHostOptions options) {
  REFIT_ASSIGN_OR_RETURN(Reign reign, TakeOver({options.state_directory, options.takeover_after}));
  observe::LogInfo(StrCat("term ", reign.term, " of run ", ToHex(reign.run)));
  auto host = std::make_unique<Host>(std::move(options), std::move(reign));
  REFIT_RETURN_IF_ERROR(host->Begin());
  return std::unique_ptr<ControllerHost>(std::move(host));
}

}  // namespace refit::runtime

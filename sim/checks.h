// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0
//
// The checkers of settled C18. They keep their own books of what was sent, handed over, written and told, and believe
// no machine's word about itself: a machine with a planted bug lies.

#pragma once

#include <bitset>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "refit/control/controller.h"
#include "refit/peer/engine_agent.h"
#include "sim/disk.h"
#include "sim/engine.h"
#include "sim/router.h"

namespace refit::sim {

class ControllerProcess;
class World;

class Checks {
 public:
  explicit Checks(World& world) : world_(world) {}

  // checks_commands.cc: what an agent may act on. INV-4, S4, refused.
  void OnLife(const Engine& engine, Term floor);
  void BeforeCommand(const Engine& engine, const sync::AgentCommand& command);
  void AfterCommand(const Engine& engine, const sync::AgentCommand& command, const peer::EngineAgentEffects& effects);
  void AfterEvent(const Engine& engine, const peer::EngineAgentEffects& effects);

  // checks_data.cc: what an engine is handed, and from which memory. INV-5, INV-6, S7.
  void OnStart(SlotIndex slot, const std::vector<std::unique_ptr<Engine>>& lives);
  void OnSend(PolicyRank rank, AttemptId attempt, Content content);
  void OnTransfer(const Engine& engine, const peer::StartTransfer& transfer);
  // What one end takes as told by the other: an announcement, a release.
  void OnTaken(SlotIndex slot, std::string_view what, AttemptId told, AttemptId running);
  void OnHandOver(const Engine& engine, AttemptId attempt, const std::vector<RankPayload>& ranks);
  void OnInstall(const Engine& engine, const std::vector<RankPayload>& ranks);
  void OnLetGo(const Engine& engine, std::size_t rank, const RankPayload& payload);
  void OnFill(SlotIndex slot, const LoadMemory& memory, AttemptId attempt);
  // When nothing is under way: of what the last attempt used.
  void OnRest(SlotIndex slot, std::string_view what, const LoadMemory* memory);

  // checks_answers.cc: what callers see. INV-1, INV-2.
  struct Request {
    Instant arrived;
    bool excused = false;  // by an entry that a superseded controller wrote (settled C9)
  };
  Request OnRequest(const Router::Entry& entry) const;
  void OnAnswer(const Request& request, const Router::Entry& entry, const Generated& generated);
  void OnServes(const Engine& engine);  // it generates again
  void OnRouterWrite(const ControllerProcess& from, const std::vector<Router::Entry>& entries);
  Content committed_content() const { return committed_.back().content; }
  WeightVersion committed_version() const { return committed_.back().version; }

  // checks_journal.cc: what is written, and what is told. INV-3, INV-4, INV-7, L1, S6, S8.
  void OnController(const ControllerProcess& process, const control::JournalState& state);
  void OnEvent(const ControllerProcess& process, const control::ControllerEvent& event);
  void OnSent(const ControllerProcess& process, SlotIndex slot, const sync::AgentCommand& command);
  void OnAppend(const ControllerProcess& process, const control::Record& record);
  void OnRow(const Disk::Row& row, Term current);
  void OnTold(const ControllerProcess& process, const control::SyncAnswered& answer);
  void OnUnanswered(const std::string& request_id, Instant asked, std::uint32_t controller);
  void OnArrow(const control::SlotChanged& change);
  void OnRouterCall(const ControllerProcess& process, const fleet::RouterAction& action);
  const std::bitset<64>& arrows() const { return arrows_; }
  std::uint32_t commits() const { return static_cast<std::uint32_t>(committed_.size() - 1); }

 private:
  struct Committed {
    Instant since;
    Content content = 0;
    WeightVersion version;
  };
  // One life, as somebody sees it who only reads what reaches its agent.
  struct Book {
    Term term;
    CommandSeq seq;
    AttemptId attempt;
    WeightVersion version;
    bool opened = false;  // an update of this attempt was handed over
    bool held = false;
    std::set<sync::AgentCommandKind> done;  // in this attempt
    Term cause;                             // of the command that engine calls belong to
    std::optional<std::string> refuse;      // why the command that arrives must be refused
    // its transfer
    AttemptId transfer;
    std::vector<PolicyRank> feeds;              // by TP rank
    std::vector<std::set<std::size_t>> handed;  // tensors, by TP rank
  };

  std::optional<std::string> MustRefuse(const Engine& engine, const Book& book,
                                        const sync::AgentCommand& command) const;
  std::optional<std::string> WrongContents(const Engine& engine, const Book& book,
                                           const sync::AgentCommand& command) const;
  void NoteReplies(Book& book, const peer::EngineAgentEffects& effects);
  void CheckCause(const Engine& engine, const Book& book, const peer::EngineAgentEffects& effects);
  std::optional<Content> ContentOf(WeightVersion version) const;
  void CheckBytes(const Engine& engine, std::size_t rank, const RankPayload& payload, std::string_view when);
  void CheckRouted(const Router::Entry& entry);

  World& world_;
  std::map<Incarnation, Book> books_;
  std::map<std::pair<CommandSeq, Incarnation>, sync::AgentCommandKind> accepted_;  // not answered yet
  std::map<std::pair<AttemptId, PolicyRank>, Content> sent_;
  std::vector<Committed> committed_{{}};                 // the first: what everybody is launched with
  std::map<std::uint32_t, std::set<Incarnation>> lost_;  // whose loss a controller has handled
  std::set<std::uint32_t> superseded_;                   // controllers that were told
  std::map<Term, Instant> acquired_;
  std::map<std::string, bool> told_;  // request -> committed
  std::map<std::string, WeightVersion> told_version_;
  std::map<std::string, std::uint32_t> outcomes_;
  std::map<WeightVersion, Digest> activated_;
  std::bitset<64> arrows_;
};

}  // namespace refit::sim

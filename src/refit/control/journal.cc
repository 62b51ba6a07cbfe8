// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0

#include "refit/control/journal.h"

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <utility>

#include "refit/base/mutant.h"
#include "refit/base/str.h"

namespace refit::control {
namespace {

Status Corrupt(std::string message) {
  return DataLoss(StrCat("the journal is corrupt: ", message),
                  "nothing is changed any more; look at the file and at its disk");
}

// For people: no line of a status may begin a line of ours.
std::string OnOneLine(std::string text) {
  std::replace_if(text.begin(), text.end(), [](unsigned char c) { return c < ' '; }, ' ');
  return text;
}

std::string Describe(const RunRecord& r) { return ToHex(r.run); }
std::string Describe(const TermRecord& r) { return ToString(r.term); }
std::string Describe(const SlotRecord& r) {
  return StrCat("slot=", r.slot, " incarnation=", ToHex(r.incarnation), " state=", ToString(r.state),
                r.reason.empty() ? "" : " reason=", r.reason);
}
std::string Describe(const BindRecord& r) {
  std::string text = StrCat("slot=", r.slot, " incarnation=", ToHex(r.incarnation), " policies=");
  for (const auto& [rank, incarnation] : r.policies) {
    text += StrCat(text.back() == '=' ? "" : ",", rank, "/", ToHex(incarnation));
  }
  return text;
}
std::string Describe(const IntentRecord& r) {
  return StrCat("request=", r.request_id, " version=", r.version, " attempt=", ToString(r.attempt),
                " source=", r.source);
}
std::string Describe(const AbortedRecord& r) {
  return StrCat("attempt=", ToString(r.attempt), " version=", r.version, r.opened ? " opened" : "");
}
std::string Describe(const CommitRecord& r) {
  std::string text = StrCat("request=", r.request_id, " version=", r.version, " digest=", ToHex(r.digest),
                            " source=", r.source, " members=");
  for (const CommitMember& member : r.members) {
    text += StrCat(text.back() == '=' ? "" : ",", member.slot, "/", ToHex(member.incarnation), "/",
                   ToString(member.attempt));
  }
  for (const auto& [slot, reason] : r.excluded) {
    text += StrCat(" excluded=", slot, " (", reason, ")");
  }
  return text;
}
std::string Describe(const OutcomeRecord& r) {
  return StrCat("request=", r.request_id, " version=", r.version,
                r.committed ? " committed: " : " not committed: ", r.status.ToString());
}
std::string Describe(const LatchRecord& r) { return r.reason.ToString(); }
std::string Describe(const RetireRecord& r) { return StrCat("slot=", r.slot); }
std::string Describe(const ServiceRecord& r) { return StrCat("slot=", r.slot, " ", ToString(r.service)); }

// ---- what a record may follow

Status Add(const RunRecord& r, JournalState& state) {
  if (state.run != RunId{} || state.term != Term{}) {
    return Corrupt(StrCat("RUN ", ToHex(r.run), " is not its first record"));
  }
  state.run = r.run;
  return OkStatus();
}

Status Add(const TermRecord& r, JournalState& state) {
  if (REFIT_MUTANT("RX-LEAD-01/term-goes-back", r.term <= state.term, false)) {
    return Corrupt(StrCat("TERM ", r.term, " after term ", state.term));
  }
  state.term = r.term;
  state.attempts = 0;
  return OkStatus();
}

Status Add(const SlotRecord& r, JournalState& state) {
  if (state.retired.contains(r.slot) && r.state != fleet::SlotState::kRetired) {
    return Corrupt(StrCat("slot ", r.slot, " is ", ToString(r.state), " after it was retired"));
  }
  JournalState::Slot& slot = state.slots[r.slot];
  const bool same = slot.incarnation == r.incarnation && !r.incarnation.is_zero();
  if (same && slot.state >= fleet::SlotState::kQuarantined && IsLive(r.state)) {
    return Corrupt(StrCat("slot ", r.slot, " is ", ToString(r.state), " in the life ", ToHex(r.incarnation),
                          " that was ended"));  // quarantine is final (RX-QUAR-03)
  }
  if (!same) {
    slot.policies.clear();
  }
  slot.incarnation = r.incarnation;
  slot.state = r.state;
  return OkStatus();
}

Status Add(const BindRecord& r, JournalState& state) {
  JournalState::Slot& slot = state.slots[r.slot];
  slot.incarnation = r.incarnation;
  slot.policies = r.policies;
  return OkStatus();
}

Status Add(const IntentRecord& r, JournalState& state) {
  if (r.attempt.term != state.term || r.attempt.n <= state.attempts) {
    return Corrupt(StrCat("INTENT of attempt ", ToString(r.attempt), " after attempt ",
                          ToString(AttemptId{state.term, state.attempts})));
  }
  if (state.outcomes.contains(r.request_id)) {
    return Corrupt(StrCat("INTENT of request '", r.request_id, "', which has its OUTCOME"));
  }
  const bool goes_on =
      state.intent.has_value() && state.intent->request_id == r.request_id && state.intent->version == r.version;
  const bool burned = r.version <= state.burned && !goes_on;  // RX-ONCE-02
  if (r.version <= state.committed || REFIT_MUTANT("RX-ONCE-02/intent-of-a-burned-number", burned, false)) {
    return Corrupt(StrCat("INTENT of version ", r.version, " after version ", std::max(state.committed, state.burned)));
  }
  state.attempts = r.attempt.n;
  state.intent = r;
  return OkStatus();
}

Status Add(const AbortedRecord& r, JournalState& state) {
  if (r.attempt.term > state.term) {
    return Corrupt(StrCat("ABORTED of attempt ", ToString(r.attempt), " in term ", state.term));
  }
  if (r.attempt.term == state.term) {
    state.attempts = std::max(state.attempts, r.attempt.n);
  }
  if (r.opened && r.version > state.committed) {
    state.burned = std::max(state.burned, r.version);
  }
  return OkStatus();
}

Status Add(const CommitRecord& r, JournalState& state) {
  if (const auto before = state.commits.find(r.version); before != state.commits.end()) {
    if (before->second.digest != r.digest && REFIT_MUTANT("RX-ONCE-03/two-digests", true, false)) {
      return Corrupt(
          StrCat("version ", r.version, " has two digests, ", ToHex(before->second.digest), " and ", ToHex(r.digest)));
    }
    if (REFIT_MUTANT("RX-COMMIT-02/commit-twice", true, false)) {
      return Corrupt(StrCat("a second COMMIT of version ", r.version));
    }
    return OkStatus();
  }
  const bool intended =
      state.intent.has_value() && state.intent->request_id == r.request_id && state.intent->version == r.version;
  if (REFIT_MUTANT("RX-JRNL-01/commit-without-intent", !intended, false)) {
    return Corrupt(StrCat("COMMIT of version ", r.version, " for request '", r.request_id, "' without its INTENT"));
  }
  const bool superseded = state.intent.has_value() && state.intent->attempt.term != state.term;
  if (REFIT_MUTANT("RX-COMMIT-02/commit-of-an-older-term", superseded, false)) {
    return Corrupt(StrCat("COMMIT of version ", r.version, " in term ", state.term, " for an INTENT of term ",
                          state.intent->attempt.term));
  }
  for (const CommitMember& member : r.members) {
    if (state.intent.has_value() && member.attempt > state.intent->attempt) {
      return Corrupt(StrCat("COMMIT of version ", r.version, " with slot ", member.slot, " of attempt ",
                            ToString(member.attempt), ", which is later than its INTENT"));
    }
  }
  for (const CommitMember& member : r.members) {  // each is about to serve, and to be sent requests
    JournalState::Slot& slot = state.slots[member.slot];
    slot.incarnation = member.incarnation;
    slot.state = fleet::SlotState::kServing;
  }
  state.committed = r.version;
  state.digest = r.digest;
  state.commits.emplace(r.version, r);
  return OkStatus();
}

Status Add(const OutcomeRecord& r, JournalState& state) {
  if (state.outcomes.contains(r.request_id) && REFIT_MUTANT("RX-ONCE-01/outcome-twice", true, false)) {
    return Corrupt(StrCat("a second OUTCOME of request '", r.request_id, "'"));
  }
  const auto commit = state.commits.find(r.version);
  const bool committed = commit != state.commits.end() && commit->second.request_id == r.request_id;
  if (committed != r.committed) {
    return Corrupt(StrCat("OUTCOME of request '", r.request_id, "' says that version ", r.version,
                          r.committed ? " was committed, and there is no COMMIT" : " was not committed, and it was"));
  }
  state.outcomes.insert_or_assign(r.request_id, r);
  if (state.intent.has_value() && state.intent->request_id == r.request_id) {
    state.intent.reset();
  }
  return OkStatus();
}

Status Add(const LatchRecord& r, JournalState& state) {
  if (!state.latch.has_value() || REFIT_MUTANT("RC-TERM-02/last-latch-wins", false, true)) {
    state.latch = r.reason;
  }
  return OkStatus();
}

Status Add(const RetireRecord& r, JournalState& state) {
  state.retired.insert(r.slot);
  return OkStatus();
}

Status Add(const ServiceRecord& r, JournalState& state) {
  if (state.retired.contains(r.slot)) {
    return Corrupt(StrCat("slot ", r.slot, " is ", ToString(r.service), " after it was retired"));
  }
  state.services.insert_or_assign(r.slot, r.service);
  return OkStatus();
}

}  // namespace

std::string_view ToString(Service service) {
  switch (service) {
    case Service::kIn: return "in service";
    case Service::kOut: return "drained";
    case Service::kLeaving: return "to be removed";
  }
  return "?";
}

std::string_view NameOf(const Record& record) {
  static constexpr std::string_view kNames[] = {"RUN",    "TERM",    "SLOT",  "BIND",   "INTENT", "ABORTED",
                                                "COMMIT", "OUTCOME", "LATCH", "RETIRE", "SERVICE"};
  static_assert(std::size(kNames) == std::variant_size_v<Record>);
  return kNames[record.index()];
}

std::string ToString(const Record& record) {
  return OnOneLine(StrCat(NameOf(record), " ", std::visit([](const auto& r) { return Describe(r); }, record)));
}

bool MustBeDurable(const Record& record) {
  return std::holds_alternative<TermRecord>(record) || std::holds_alternative<IntentRecord>(record) ||
         std::holds_alternative<CommitRecord>(record) || std::holds_alternative<OutcomeRecord>(record) ||
         std::holds_alternative<LatchRecord>(record) || std::holds_alternative<ServiceRecord>(record);
}

Status Apply(const Record& record, JournalState& state) {
  return std::visit([&state](const auto& r) { return Add(r, state); }, record);
}

Result<JournalState> Replay(std::span<const std::string> payloads) {
  JournalState state;
  for (std::size_t i = 0; i < payloads.size(); ++i) {
    Result<Record> record = Decode(payloads[i]);
    Status status = record.ok() ? Apply(*record, state) : record.status();
    if (!status.ok() && REFIT_MUTANT("RX-JRNL-02/skip-bad-records", true, false)) {
      return status.WithContext(StrCat("record ", i + 1));
    }
  }
  return state;
}

}  // namespace refit::control

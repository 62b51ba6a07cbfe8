// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0
//
// What a controller writes down before it acts, and what a successor reads (contract §II.9, settled C11). The medium is
// somebody else's: one record is one row, appended only while the writer's term is current. COMMIT is unique by
// version.

#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "refit/base/bytes.h"
#include "refit/base/digest.h"
#include "refit/base/ids.h"
#include "refit/base/status.h"
#include "refit/fleet/slot.h"

namespace refit::control {

struct RunRecord {
  RunId run;
  friend bool operator==(const RunRecord&, const RunRecord&) = default;
};
struct TermRecord {
  Term term;
  friend bool operator==(const TermRecord&, const TermRecord&) = default;
};
// A slot is about to enter that state (RX-JRNL-01). kServing: about to be activated outside a refit, by a catch-up.
struct SlotRecord {
  SlotIndex slot;
  Incarnation incarnation;  // zero: none yet
  fleet::SlotState state;
  std::string reason;
  friend bool operator==(const SlotRecord&, const SlotRecord&) = default;
};
struct BindRecord {  // one per slot whose links changed
  SlotIndex slot;
  Incarnation incarnation;
  std::vector<std::pair<PolicyRank, Incarnation>> policies;  // of its links, in stream order
  friend bool operator==(const BindRecord&, const BindRecord&) = default;
};
struct IntentRecord {
  std::string request_id;
  WeightVersion version;
  AttemptId attempt;
  std::string source;
  friend bool operator==(const IntentRecord&, const IntentRecord&) = default;
};
struct AbortedRecord {
  AttemptId attempt;
  WeightVersion version;
  bool opened = false;  // some engine had its first `update` under it: the number is burned unless committed
  friend bool operator==(const AbortedRecord&, const AbortedRecord&) = default;
};
struct CommitMember {
  SlotIndex slot;
  Incarnation incarnation;
  AttemptId attempt;
  friend bool operator==(const CommitMember&, const CommitMember&) = default;
};
struct CommitRecord {
  std::string request_id;
  WeightVersion version;
  Digest digest;
  std::string source;  // that catch-ups lease again
  std::vector<CommitMember> members;
  std::vector<std::pair<SlotIndex, std::string>> excluded;  // with the reason
  friend bool operator==(const CommitRecord&, const CommitRecord&) = default;
};
struct OutcomeRecord {
  std::string request_id;
  WeightVersion version;
  bool committed = false;
  Status status;
  friend bool operator==(const OutcomeRecord&, const OutcomeRecord&) = default;
};
struct LatchRecord {
  Status reason;
  friend bool operator==(const LatchRecord&, const LatchRecord&) = default;
};
struct RetireRecord {
  SlotIndex slot;
  friend bool operator==(const RetireRecord&, const RetireRecord&) = default;
};
// What people want of a slot (contract II.13). Those of the configuration are in service without a record.
enum class Service : std::uint8_t {
  kIn,       // takes part in refits, and serves
  kOut,      // drained: its process may go on
  kLeaving,  // to be drained, shut down and retired
};
std::string_view ToString(Service service);
struct ServiceRecord {
  SlotIndex slot;
  Service service = Service::kIn;
  friend bool operator==(const ServiceRecord&, const ServiceRecord&) = default;
};
using Record = std::variant<RunRecord, TermRecord, SlotRecord, BindRecord, IntentRecord, AbortedRecord, CommitRecord,
                            OutcomeRecord, LatchRecord, RetireRecord, ServiceRecord>;
std::string_view NameOf(const Record& record);  // "RUN", "TERM", …
std::string ToString(const Record& record);     // one line, for people and traces

// Whether losing it could make two controllers tell two stories: the append is flushed before anything goes on.
bool MustBeDurable(const Record& record);  // TERM, INTENT, COMMIT, OUTCOME, LATCH, SERVICE

std::string Encode(const Record& record);
// DATA_LOSS for anything that Encode did not write: payloads come from a file (RX-JRNL-02).
Result<Record> Decode(std::string_view payload);

// What all records together say.
struct JournalState {
  RunId run;
  Term term;                   // of the last TERM
  std::uint32_t attempts = 0;  // the highest n used under `term`
  WeightVersion committed;     // the last
  Digest digest;               // of the last
  std::map<WeightVersion, CommitRecord> commits;
  WeightVersion burned;                // the highest version that was opened and not committed
  std::optional<IntentRecord> intent;  // of a request without OUTCOME
  std::map<std::string, OutcomeRecord> outcomes;
  struct Slot {
    Incarnation incarnation;
    fleet::SlotState state = fleet::SlotState::kEmpty;
    std::vector<std::pair<PolicyRank, Incarnation>> policies;
  };
  std::map<SlotIndex, Slot> slots;
  std::set<SlotIndex> retired;
  std::map<SlotIndex, Service> services;
  std::optional<Status> latch;
};

// One more record. DATA_LOSS, which means CORRUPT, if it contradicts what is there, which then stays as it was: a RUN
// that is not the first record, a term or an attempt that goes back, a number that is published or burned already, an
// INTENT of a request that has its OUTCOME, a second COMMIT of a version, two digests, a COMMIT without its INTENT in
// the same term, a second OUTCOME of a request, an OUTCOME that denies or invents a COMMIT, a life or a slot that goes
// on after its end.
Status Apply(const Record& record, JournalState& state);
Result<JournalState> Replay(std::span<const std::string> payloads);

}  // namespace refit::control

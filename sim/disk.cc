// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0

#include "sim/disk.h"

#include <algorithm>
#include <utility>
#include <variant>

#include "refit/base/mutant.h"
#include "refit/base/str.h"
#include "sim/checks.h"
#include "sim/faults.h"
#include "sim/node.h"
#include "sim/timing.h"
#include "sim/world.h"

namespace refit::sim {

Disk::Disk(World& world) : world_(world) {}

Term Disk::Acquire() {
  term_ = term_.Next();
  if (rows_.empty()) {
    static_cast<void>(Write(term_, control::RunRecord{run_}));
  }
  static_cast<void>(Write(term_, control::TermRecord{term_}));
  return term_;
}

// BEGIN IMMEDIATE; term is mine?; insert; COMMIT.
Status Disk::Write(Term term, const control::Record& record) {
  if (REFIT_MUTANT("RX-COMMIT-02/record-of-any-term", term != term_, false)) {
    return FailedPrecondition(StrCat("term ", term, " is superseded by term ", term_));
  }
  if (const auto* commit = std::get_if<control::CommitRecord>(&record);
      commit != nullptr && FindCommit(commit->version) != nullptr) {
    return FailedPrecondition(StrCat("version ", commit->version, " is committed already"));
  }
  rows_.push_back({term, record, control::Encode(record)});
  world_.Note("disk: term ", term, " wrote ", control::NameOf(record));
  world_.checks().OnRow(rows_.back(), term_);
  return OkStatus();
}

void Disk::Append(Node& writer, Term term, const control::Record& record, std::function<void(const Status&)> done) {
  const bool fails = world_.faults().Take(FaultKind::kFailAppend, 0);
  const bool late = !fails && world_.faults().Take(FaultKind::kLateAppend, 0);
  const bool written = !fails || world_.OneIn(2);  // a failed flush may have kept it
  Duration taken = control::MustBeDurable(record) ? world_.Between(Micros(500), Micros(8000))
                                                  : world_.Between(Micros(20), Micros(500));
  if (late) {
    taken += kAppendDeadline + world_.Between(Millis(1), Millis(500));
  }
  busy_until_ = std::max(busy_until_ + Duration(1), world_.now() + taken);  // one writer at a time, in order
  world_.At(busy_until_, [this, &writer, term, record, fails, written, done = std::move(done)] {
    if (!writer.alive()) {
      return;  // its transaction ends with it
    }
    Status status = written ? Write(term, record) : OkStatus();
    if (fails) {
      status = DataLoss("the flush failed");
    }
    writer.Run([done, status] { done(status); });
  });
}

std::vector<std::string> Disk::Payloads() const {
  std::vector<std::string> payloads;
  for (const Row& row : rows_) {
    payloads.push_back(row.payload);
  }
  return payloads;
}

const control::CommitRecord* Disk::committed() const {
  for (auto row = rows_.rbegin(); row != rows_.rend(); ++row) {
    if (const auto* commit = std::get_if<control::CommitRecord>(&row->record)) {
      return commit;
    }
  }
  return nullptr;
}

const control::CommitRecord* Disk::FindCommit(WeightVersion version) const {
  for (const Row& row : rows_) {
    const auto* commit = std::get_if<control::CommitRecord>(&row.record);
    if (commit != nullptr && commit->version == version) {
      return commit;
    }
  }
  return nullptr;
}

const control::OutcomeRecord* Disk::FindOutcome(const std::string& request_id) const {
  for (const Row& row : rows_) {
    const auto* outcome = std::get_if<control::OutcomeRecord>(&row.record);
    if (outcome != nullptr && outcome->request_id == request_id) {
      return outcome;
    }
  }
  return nullptr;
}

bool Disk::Latched() const {
  return std::any_of(rows_.begin(), rows_.end(),
                     [](const Row& row) { return std::holds_alternative<control::LatchRecord>(row.record); });
}

}  // namespace refit::sim

// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0
//
// The one file that holds term and journal: an append is one transaction, made only while the writer's term is current;
// COMMIT is unique by version. What was written survives every process.

#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "refit/base/ids.h"
#include "refit/base/status.h"
#include "refit/base/time.h"
#include "refit/control/journal.h"

namespace refit::sim {

class Node;
class World;

class Disk {
 public:
  struct Row {
    Term writer;
    control::Record record;
    std::string payload;
  };

  explicit Disk(World& world);

  RunId run() const { return run_; }
  Term term() const { return term_; }
  Term Acquire();  // greater than any before, durably
  // done is told in the writer's process; by then, or never, it is written.
  void Append(Node& writer, Term term, const control::Record& record, std::function<void(const Status&)> done);

  const std::vector<Row>& rows() const { return rows_; }
  std::vector<std::string> Payloads() const;
  // Of the last COMMIT; null: none.
  const control::CommitRecord* committed() const;
  const control::CommitRecord* FindCommit(WeightVersion version) const;
  const control::OutcomeRecord* FindOutcome(const std::string& request_id) const;
  bool Latched() const;

 private:
  Status Write(Term term, const control::Record& record);

  World& world_;
  const RunId run_{{7, 7}};
  Term term_;
  std::vector<Row> rows_;
  Instant busy_until_{};
};

}  // namespace refit::sim

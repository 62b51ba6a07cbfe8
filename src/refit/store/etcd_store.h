// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0
//
// Term and journal in etcd, for hosts without a common disk (settled C11). Keys under the prefix, all of them text but
// for the payload of a record:
//
//   holder/term, holder/pid, holder/start_time, holder/boot_id, holder/address
//   journal/000000000001 …   "DIGEST TERM TYPE\nPAYLOAD", the digest that of the payload
//   commit/7                 the place of version 7's COMMIT in the journal, which makes it unique (RX-COMMIT-02)
//
// Every write is a transaction on condition that holder/term is the writer's and that the record's place is free. An
// append that got no answer is tried again for a while: a place that is taken by this very record was taken by us.

#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "refit/base/ids.h"
#include "refit/base/status.h"
#include "refit/base/time.h"
#include "refit/control/journal.h"
#include "refit/store/etcd.h"
#include "refit/store/store.h"

namespace refit::store {

class EtcdStore final : public Store {
 public:
  static Result<std::unique_ptr<EtcdStore>> Open(const std::string& place);
  static Result<std::unique_ptr<EtcdStore>> OpenExisting(const std::string& place);

  Result<Holder> ReadHolder() override;
  Result<std::vector<Row>> ReadRows() override;
  Result<Term> TakeTerm(Term seen, const Holder& self, RunId run) override;
  Status Announce(Term term, const std::string& address) override;
  Status Release(Term term) override;
  Status Append(Term term, const control::Record& record) override;

 private:
  EtcdStore(std::string place, EtcdPlace parsed);
  std::string Key(std::string_view name) const;
  std::string JournalKey(std::uint64_t position) const;
  Result<std::uint64_t> ReadLast();  // position of the last record; 0: none
  Status WriteAsHolder(Term term, std::vector<std::pair<std::string, std::string>> writes);

  const std::string place_;
  const std::string prefix_;
  Etcd etcd_;
  std::uint64_t next_ = 0;  // position of this writer's next record; 0: it holds no term
};

}  // namespace refit::store

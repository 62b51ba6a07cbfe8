// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0
//
// What must survive a controller: the term and the journal (settled C11). An append is one transaction that first asks
// whether the term is still the writer's, so that a controller which was taken over from cannot write any more. Where
// they are kept is a place in words: a folder on a disk of this host (sqlite_store.h), etcd://HOST:PORT/PREFIX for
// hosts without a common disk (etcd_store.h), or "" for memory, for a run that nobody succeeds.

#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "refit/base/ids.h"
#include "refit/base/status.h"
#include "refit/control/journal.h"

namespace refit::store {

// The process that acts under a term.
struct Holder {
  Term term{};                   // 0: nobody has had one yet
  std::int32_t pid = 0;          // 0: it ended by itself and said so
  std::uint64_t start_time = 0;  // of the process, in clock ticks since the boot: a pid alone may be somebody else's
  std::string boot_id{};         // of its host: after a boot nobody of before lives
  std::string address{};         // where it serves; empty: not yet, or not any more
};

struct Row {
  std::string payload;
  std::uint64_t written_at = 0;  // milliseconds since 1970, by the writer's clock
};

// Thread: one at a time. Every call ends within 10 s.
class Store {
 public:
  // Made where nothing is there yet.
  static Result<std::unique_ptr<Store>> Open(const std::string& place);
  // For those who look for the holder: NOT_FOUND where no controller has begun.
  static Result<std::unique_ptr<Store>> OpenExisting(const std::string& place);
  virtual ~Store() = default;

  virtual Result<Holder> ReadHolder() = 0;
  // Every record, in order. DATA_LOSS where one is missing or not what was written (RX-JRNL-02).
  virtual Result<std::vector<Row>> ReadRows() = 0;
  Result<std::vector<std::string>> ReadRecords();  // their payloads alone

  // The term after `seen`, for this process. Writes TERM, and RUN before it where there are no records. ABORTED where
  // somebody has taken it since (RX-LEAD-01).
  virtual Result<Term> TakeTerm(Term seen, const Holder& self, RunId run) = 0;
  // Whoever holds the term, and only he, says where he serves; empty: nowhere any more.
  virtual Status Announce(Term term, const std::string& address) = 0;
  virtual Status Release(Term term) = 0;

  // ABORTED: the term is not the writer's any more. Any other failure says nothing about what is written (RX-JRNL-03).
  virtual Status Append(Term term, const control::Record& record) = 0;
};

// ---- for those who keep it
std::string DigestOf(std::string_view payload);
std::uint64_t UnixMilliseconds();  // for people: nothing is decided by it
Status Damaged(const std::string& place, std::string_view what);
Status Superseded(Term term, Term by);

}  // namespace refit::store

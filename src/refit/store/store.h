// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0
//
// What must survive a controller: the term and the journal, in one SQLite file of the state directory (settled C11). An
// append is one transaction that first asks whether the term is still the writer's, so that a controller which was
// taken over from cannot write any more. The file is local: SQLite's locks and its write-ahead log do not cross hosts.
//
// The log mode is WAL: a commit is one write and one flush, records that need no flush cost none, and whoever only
// reads never waits.

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

class Connection;

inline constexpr char kFileName[] = "controller.db";

// The process that acts under a term.
struct Holder {
  Term term{};                   // 0: nobody has had one yet
  std::int32_t pid = 0;          // 0: it ended by itself and said so
  std::uint64_t start_time = 0;  // of the process, in clock ticks since the boot: a pid alone may be somebody else's
  std::string boot_id{};         // of its host: after a boot nobody of before lives
  std::string address{};         // where it serves; empty: not yet, or not any more
};

// Thread: one at a time.
class Store {
 public:
  // The folder is made where it is missing. Empty: in memory, for a run that nobody succeeds.
  static Result<std::unique_ptr<Store>> Open(const std::string& folder);
  // For those who look for the holder: NOT_FOUND where no controller has begun.
  static Result<std::unique_ptr<Store>> OpenExisting(const std::string& folder);
  ~Store();
  Store(const Store&) = delete;
  Store& operator=(const Store&) = delete;

  Result<Holder> ReadHolder();
  // Of every record, in order. DATA_LOSS where one is missing or not what was written (RX-JRNL-02).
  Result<std::vector<std::string>> ReadRecords();

  // The term after `seen`, for this process. Writes TERM, and RUN before it in a file without records. ABORTED where
  // somebody has taken it since (RX-LEAD-01).
  Result<Term> TakeTerm(Term seen, const Holder& self, RunId run);
  // Whoever holds the term, and only he, says where he serves; empty: nowhere any more.
  Status Announce(Term term, const std::string& address);
  Status Release(Term term);

  // ABORTED: the term is not the writer's any more, and nothing was written. Any other failure says nothing about what
  // the file holds (RX-JRNL-03).
  Status Append(Term term, const control::Record& record);

 private:
  explicit Store(std::unique_ptr<Connection> connection);
  static Result<std::unique_ptr<Store>> Use(const std::string& path);
  Status Prepare();
  Status CreateTables();
  enum class Flush : std::uint8_t { kUnknown, kNo, kYes };
  Result<bool> IsEmpty();
  Result<std::uint64_t> ReadNumber(std::string_view sql);
  template <typename Work>
  Status Transact(Flush flush, Work work);
  Status CheckTerm(Term term);
  Status Insert(Term term, const control::Record& record);

  std::unique_ptr<Connection> connection_;
  Flush flush_ = Flush::kUnknown;  // what the connection was told last
};

}  // namespace refit::store

// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0
//
// Term and journal in one SQLite file of a folder. The file is local: SQLite's locks and its write-ahead log do not
// cross hosts.
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
#include "refit/store/store.h"

namespace refit::store {

class Connection;

inline constexpr char kFileName[] = "controller.db";

class SqliteStore final : public Store {
 public:
  // The folder is made where it is missing. Empty: in memory.
  static Result<std::unique_ptr<SqliteStore>> Open(const std::string& folder);
  static Result<std::unique_ptr<SqliteStore>> OpenExisting(const std::string& folder);
  ~SqliteStore() override;
  SqliteStore(const SqliteStore&) = delete;
  SqliteStore& operator=(const SqliteStore&) = delete;

  Result<Holder> ReadHolder() override;
  Result<std::vector<Row>> ReadRows() override;
  Result<Term> TakeTerm(Term seen, const Holder& self, RunId run) override;
  Status Announce(Term term, const std::string& address) override;
  Status Release(Term term) override;
  Status Append(Term term, const control::Record& record) override;

 private:
  explicit SqliteStore(std::unique_ptr<Connection> connection);
  static Result<std::unique_ptr<SqliteStore>> Use(const std::string& path);
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

// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0

#include "refit/store/sqlite.h"

#include <sqlite3.h>

#include <chrono>
#include <utility>

#include "refit/base/str.h"

namespace refit::store {
namespace {

Status Failed(sqlite3* database, const std::string& path, int code) {
  const std::string what = StrCat(path, ": ", database == nullptr ? sqlite3_errstr(code) : sqlite3_errmsg(database));
  switch (code & 0xff) {  // the primary code
    case SQLITE_CORRUPT:
      return DataLoss(what, "look at the disk; then restore the file, or move it away and begin a new run");
    case SQLITE_NOTADB: return DataLoss(what, "it is no state of refit; give another state directory");
    case SQLITE_FULL: return ResourceExhausted(what, "free some disk space");
    case SQLITE_BUSY: return Unavailable(what, "another process keeps it locked; see who has it open");
    case SQLITE_CONSTRAINT: return Status(StatusCode::kAlreadyExists, what);
    case SQLITE_CANTOPEN:
    case SQLITE_PERM:
    case SQLITE_READONLY: return FailedPrecondition(what, "give a state directory that this user can write");
    default: return DataLoss(what, "look at the disk that holds it");
  }
}

}  // namespace

// ---- Statement

void Statement::Finalize::operator()(sqlite3_stmt* statement) const { sqlite3_finalize(statement); }

Statement::Statement(sqlite3* database, const std::string& path, std::string_view sql)
    : database_(database), path_(&path) {
  sqlite3_stmt* statement = nullptr;
  error_ = sqlite3_prepare_v2(database, sql.data(), static_cast<int>(sql.size()), &statement, nullptr);
  statement_.reset(statement);
}

Statement& Statement::Bind(std::uint64_t number) {
  error_ = error_ == 0 ? sqlite3_bind_int64(statement_.get(), next_++, static_cast<sqlite3_int64>(number)) : error_;
  return *this;
}
Statement& Statement::Bind(std::string_view text) {
  error_ = error_ == 0 ? sqlite3_bind_text64(statement_.get(), next_++, text.data(), text.size(), nullptr, SQLITE_UTF8)
                       : error_;
  return *this;
}
Statement& Statement::BindBlob(std::string_view bytes) {
  error_ = error_ == 0 ? sqlite3_bind_blob64(statement_.get(), next_++, bytes.data(), bytes.size(), nullptr) : error_;
  return *this;
}
Statement& Statement::BindNull() {
  error_ = error_ == 0 ? sqlite3_bind_null(statement_.get(), next_++) : error_;
  return *this;
}

Result<bool> Statement::Step() {
  if (error_ == 0) {
    const int code = sqlite3_step(statement_.get());
    if (code == SQLITE_ROW || code == SQLITE_DONE) {
      return code == SQLITE_ROW;
    }
    error_ = code;
  }
  return Failed(database_, *path_, error_);
}

Status Statement::Run() {
  while (true) {
    REFIT_ASSIGN_OR_RETURN(const bool row, Step());
    if (!row) {
      return OkStatus();
    }
  }
}

std::uint64_t Statement::Number(int column) const {
  return static_cast<std::uint64_t>(sqlite3_column_int64(statement_.get(), column));
}

std::string Statement::Text(int column) const {
  const auto* bytes = static_cast<const char*>(sqlite3_column_blob(statement_.get(), column));
  const int size = sqlite3_column_bytes(statement_.get(), column);
  return bytes == nullptr ? std::string() : std::string(bytes, static_cast<std::size_t>(size));
}

// ---- Connection

Result<std::unique_ptr<Connection>> Connection::Open(const std::string& path, Duration busy_timeout) {
  sqlite3* database = nullptr;
  const int code = sqlite3_open_v2(path.c_str(), &database, SQLITE_OPEN_READWRITE | SQLITE_OPEN_NOMUTEX, nullptr);
  std::unique_ptr<Connection> connection(new Connection(path, database));
  if (code != SQLITE_OK) {
    return Failed(database, path, code);
  }
  const auto wait = std::chrono::duration_cast<std::chrono::milliseconds>(busy_timeout);
  sqlite3_busy_timeout(database, static_cast<int>(wait.count()));
  return connection;
}

Connection::~Connection() { sqlite3_close_v2(database_); }

void Connection::RollBack() {
  if (sqlite3_get_autocommit(database_) == 0) {
    static_cast<void>(Run("ROLLBACK"));  // fails where the failure already rolled back
  }
}

}  // namespace refit::store

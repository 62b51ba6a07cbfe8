// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0
//
// SQLite's interface as Status and owners. Private to store/.

#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "refit/base/ids.h"
#include "refit/base/status.h"
#include "refit/base/time.h"

struct sqlite3;
struct sqlite3_stmt;

namespace refit::store {

// A prepared statement that runs once. Parameters are bound in order; what went wrong shows in Step.
class Statement {
 public:
  Statement(sqlite3* database, const std::string& path, std::string_view sql);

  Statement& Bind(std::uint64_t number);
  Statement& Bind(std::string_view text);
  Statement& BindBlob(std::string_view bytes);
  Statement& BindNull();

  Result<bool> Step();  // whether there is one more row
  Status Run();         // to its end
  std::uint64_t Number(int column) const;
  std::string Text(int column) const;  // a blob's bytes as well

 private:
  struct Finalize {
    void operator()(sqlite3_stmt* statement) const;
  };

  sqlite3* database_;
  const std::string* path_;
  std::unique_ptr<sqlite3_stmt, Finalize> statement_;
  int next_ = 1;
  int error_ = 0;
};

// Thread: one at a time.
class Connection {
 public:
  // The file must be there; ":memory:" is a database that ends with the connection.
  static Result<std::unique_ptr<Connection>> Open(const std::string& path, Duration busy_timeout);
  ~Connection();
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;

  Status Run(std::string_view sql) { return Prepare(sql).Run(); }
  Statement Prepare(std::string_view sql) { return {database_, path_, sql}; }
  void RollBack();  // whatever is open
  const std::string& path() const { return path_; }

 private:
  Connection(std::string path, sqlite3* database) : path_(std::move(path)), database_(database) {}

  const std::string path_;
  sqlite3* const database_;
};

}  // namespace refit::store

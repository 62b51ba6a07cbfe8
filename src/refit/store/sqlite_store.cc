// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0

#include "refit/store/sqlite_store.h"

#include <fcntl.h>
#include <linux/magic.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <limits>
#include <span>
#include <utility>
#include <variant>

#include "refit/base/mutant.h"
#include "refit/base/str.h"
#include "refit/exec/clock.h"
#include "refit/store/sqlite.h"

namespace refit::store {
namespace {

constexpr char kInMemory[] = ":memory:";
constexpr std::uint64_t kApplicationId = 0x72666974;  // "rfit"
constexpr std::uint64_t kSchema = 2;
// Writers hold the file for one commit. Whoever keeps it longer is not one of them.
constexpr Duration kBusyTimeout = std::chrono::seconds(3);
constexpr char kRemedy[] = "give another state directory, or look at what is there";

// Where two hosts may see one file, and locks and shared memory of one do not reach the other.
constexpr auto kOfManyHosts = std::to_array<unsigned long>(
    {NFS_SUPER_MAGIC, SMB_SUPER_MAGIC, SMB2_SUPER_MAGIC, CIFS_SUPER_MAGIC, CEPH_SUPER_MAGIC, 0x0BD00BD0 /* Lustre */});

Status CheckFolder(const std::string& folder) {
  struct stat status = {};
  struct statfs system = {};
  if (lstat(folder.c_str(), &status) != 0 || statfs(folder.c_str(), &system) != 0) {
    return FailedPrecondition(StrCat("state directory ", folder, ": ", std::strerror(errno)), kRemedy);
  }
  if (!S_ISDIR(status.st_mode)) {
    return FailedPrecondition(StrCat("state directory ", folder, " is a link or no directory"),
                              "give the directory itself");
  }
  if (status.st_uid != geteuid() || (status.st_mode & (S_IWGRP | S_IWOTH)) != 0) {
    return FailedPrecondition(StrCat("state directory ", folder, " can be changed by other users"),
                              "it must be this user's own, with mode 0700");
  }
  const auto type = static_cast<unsigned long>(system.f_type);
  if (std::find(kOfManyHosts.begin(), kOfManyHosts.end(), type) != kOfManyHosts.end()) {
    return FailedPrecondition(StrCat("state directory ", folder, " is on a network file system"),
                              "give one on a disk of this host: other hosts do not see its locks");
  }
  return OkStatus();
}

Status MakeFolder(const std::string& folder) {
  std::error_code error;
  const std::filesystem::path path(folder);
  if (path.has_parent_path()) {
    std::filesystem::create_directories(path.parent_path(), error);
  }
  if (mkdir(folder.c_str(), S_IRWXU) != 0 && errno != EEXIST) {
    return FailedPrecondition(StrCat("state directory ", folder, ": ", std::strerror(errno)), kRemedy);
  }
  return OkStatus();
}

// Created by nobody else's mode. An existing file is not opened here: closing it would drop SQLite's locks.
Status MakeFile(const std::string& path) {
  const int file = open(path.c_str(), O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, S_IRUSR | S_IWUSR);
  if (file >= 0) {
    close(file);
    return OkStatus();
  }
  struct stat status = {};
  if (errno != EEXIST || lstat(path.c_str(), &status) != 0) {
    return FailedPrecondition(StrCat(path, ": ", std::strerror(errno)), kRemedy);
  }
  return S_ISREG(status.st_mode) ? OkStatus() : FailedPrecondition(StrCat(path, " is no regular file"), kRemedy);
}

std::string OnOneLine(std::string text) {
  std::replace(text.begin(), text.end(), '\n', ' ');
  return text;
}

}  // namespace

// ---- opening

SqliteStore::SqliteStore(std::unique_ptr<Connection> connection) : connection_(std::move(connection)) {}
SqliteStore::~SqliteStore() = default;

Result<std::unique_ptr<SqliteStore>> SqliteStore::Open(const std::string& folder) {
  if (folder.empty()) {
    return Use(kInMemory);
  }
  REFIT_RETURN_IF_ERROR(MakeFolder(folder));
  REFIT_RETURN_IF_ERROR(CheckFolder(folder));
  const std::string path = StrCat(folder, "/", kFileName);
  REFIT_RETURN_IF_ERROR(MakeFile(path));
  return Use(path);
}

Result<std::unique_ptr<SqliteStore>> SqliteStore::OpenExisting(const std::string& folder) {
  const std::string path = StrCat(folder, "/", kFileName);
  if (access(path.c_str(), F_OK) != 0) {
    return NotFound(StrCat("no controller has begun with the state directory ", folder),
                    "start `refit controller` with it");
  }
  REFIT_RETURN_IF_ERROR(CheckFolder(folder));
  return Use(path);
}

Result<std::unique_ptr<SqliteStore>> SqliteStore::Use(const std::string& path) {
  REFIT_ASSIGN_OR_RETURN(std::unique_ptr<Connection> connection, Connection::Open(path, kBusyTimeout));
  std::unique_ptr<SqliteStore> store(new SqliteStore(std::move(connection)));
  // Two that begin the file at once: changing its mode does not wait for the other one as any other statement does.
  Status prepared;
  const auto settled = [&] {
    prepared = store->Prepare();
    return prepared.code() != StatusCode::kUnavailable;
  };
  static_cast<void>(exec::WaitUntil(settled, exec::Now() + kBusyTimeout));
  REFIT_RETURN_IF_ERROR(prepared);
  return store;
}

// Whether the file is ours; an empty one is made ours. Nothing is written to another program's.
Status SqliteStore::Prepare() {
  REFIT_RETURN_IF_ERROR(connection_->Run("PRAGMA cache_size = -128"));  // KiB; nothing is read twice
  REFIT_ASSIGN_OR_RETURN(const bool empty, IsEmpty());
  if (empty) {
    REFIT_RETURN_IF_ERROR(connection_->Run("PRAGMA journal_mode = WAL"));
    const Status created = Transact(Flush::kYes, [this]() -> Status {
      REFIT_ASSIGN_OR_RETURN(const bool still_empty, IsEmpty());  // somebody else may have begun as well
      return still_empty ? CreateTables() : OkStatus();
    });
    REFIT_RETURN_IF_ERROR(created);
  }
  REFIT_ASSIGN_OR_RETURN(const std::uint64_t application, ReadNumber("PRAGMA application_id"));
  if (application != kApplicationId) {
    return FailedPrecondition(StrCat(connection_->path(), " is a database of another program"), kRemedy);
  }
  REFIT_ASSIGN_OR_RETURN(const std::uint64_t schema, ReadNumber("PRAGMA user_version"));
  if (schema != kSchema) {
    return FailedPrecondition(StrCat(connection_->path(), " has schema ", schema, ", known is ", kSchema),
                              "use the refit that wrote it, or another state directory");
  }
  return OkStatus();
}

Result<bool> SqliteStore::IsEmpty() {
  REFIT_ASSIGN_OR_RETURN(const std::uint64_t application, ReadNumber("PRAGMA application_id"));
  REFIT_ASSIGN_OR_RETURN(const std::uint64_t tables, ReadNumber("SELECT count(*) FROM sqlite_schema"));
  return application == 0 && tables == 0;
}

Result<std::uint64_t> SqliteStore::ReadNumber(std::string_view sql) {
  Statement statement = connection_->Prepare(sql);
  REFIT_ASSIGN_OR_RETURN(const bool row, statement.Step());
  return row ? statement.Number(0) : 0;
}

Status SqliteStore::CreateTables() {
  for (const std::string_view sql :
       {"CREATE TABLE authority(id INTEGER PRIMARY KEY CHECK(id = 1), term INTEGER NOT NULL, pid INTEGER NOT NULL,"
        " start_time INTEGER NOT NULL, boot_id TEXT NOT NULL, address TEXT NOT NULL)",
        "INSERT INTO authority VALUES(1, 0, 0, 0, '', '')",
        // version: of a COMMIT; the index is what makes it unique (RX-COMMIT-02).
        "CREATE TABLE journal(position INTEGER PRIMARY KEY, term INTEGER NOT NULL, type TEXT NOT NULL,"
        " version INTEGER, payload BLOB NOT NULL, digest TEXT NOT NULL, written_at INTEGER NOT NULL)",
        "CREATE UNIQUE INDEX one_commit_per_version ON journal(version) WHERE version IS NOT NULL"}) {
    REFIT_RETURN_IF_ERROR(connection_->Run(sql));
  }
  REFIT_RETURN_IF_ERROR(connection_->Run(StrCat("PRAGMA application_id = ", kApplicationId)));
  return connection_->Run(StrCat("PRAGMA user_version = ", kSchema));
}

// ---- reading

Result<Holder> SqliteStore::ReadHolder() {
  Statement row = connection_->Prepare("SELECT term, pid, start_time, boot_id, address FROM authority WHERE id = 1");
  REFIT_ASSIGN_OR_RETURN(const bool found, row.Step());
  if (!found || row.Number(0) > std::numeric_limits<std::uint32_t>::max()) {
    return Damaged(connection_->path(), "it does not say who holds the term");
  }
  return Holder{.term = Term(static_cast<std::uint32_t>(row.Number(0))),
                .pid = static_cast<std::int32_t>(row.Number(1)),
                .start_time = row.Number(2),
                .boot_id = row.Text(3),
                .address = row.Text(4)};
}

Result<std::vector<Row>> SqliteStore::ReadRows() {
  Statement check = connection_->Prepare("PRAGMA quick_check(1)");
  REFIT_ASSIGN_OR_RETURN(const bool checked, check.Step());
  if (!checked || check.Text(0) != "ok") {
    return Damaged(connection_->path(), OnOneLine(check.Text(0)));
  }
  Statement row = connection_->Prepare("SELECT position, payload, digest, written_at FROM journal ORDER BY position");
  std::vector<Row> rows;
  while (true) {
    REFIT_ASSIGN_OR_RETURN(const bool more, row.Step());
    if (!more) {
      return rows;
    }
    const std::uint64_t position = row.Number(0);
    if (REFIT_MUTANT("RX-JRNL-02/accept-a-hole", position != rows.size() + 1, false)) {
      return Damaged(connection_->path(), StrCat("record ", rows.size() + 1, " is missing"));
    }
    std::string payload = row.Text(1);
    if (REFIT_MUTANT("RX-JRNL-02/trust-the-bytes", DigestOf(payload) != row.Text(2), false)) {
      return Damaged(connection_->path(), StrCat("record ", position, " is not what was written"));
    }
    rows.push_back({std::move(payload), row.Number(3)});
  }
}

// ---- writing

template <typename Work>
Status SqliteStore::Transact(Flush flush, Work work) {
  if (flush != flush_) {
    REFIT_RETURN_IF_ERROR(
        connection_->Run(flush == Flush::kYes ? "PRAGMA synchronous = FULL" : "PRAGMA synchronous = NORMAL"));
    flush_ = flush;
  }
  REFIT_RETURN_IF_ERROR(connection_->Run("BEGIN IMMEDIATE"));
  Status status = work();
  if (status.ok()) {
    status = connection_->Run("COMMIT");
  }
  if (!status.ok()) {
    connection_->RollBack();
  }
  return status;
}

// In the transaction of the write that it allows (RX-LEAD-02).
Status SqliteStore::CheckTerm(Term term) {
  REFIT_ASSIGN_OR_RETURN(const Holder holder, ReadHolder());
  if (REFIT_MUTANT("RX-LEAD-02/append-of-any-term", holder.term != term, false)) {
    return Superseded(term, holder.term);
  }
  return OkStatus();
}

Status SqliteStore::Insert(Term term, const control::Record& record) {
  const std::string payload = control::Encode(record);
  Statement insert =
      connection_->Prepare("INSERT INTO journal(term, type, version, payload, digest, written_at) VALUES(?,?,?,?,?,?)");
  insert.Bind(term.value()).Bind(control::NameOf(record));
  if (const auto* commit = std::get_if<control::CommitRecord>(&record)) {
    insert.Bind(commit->version.value());
  } else {
    insert.BindNull();
  }
  const std::string digest = DigestOf(payload);
  return insert.BindBlob(payload).Bind(digest).Bind(UnixMilliseconds()).Run();
}

Result<Term> SqliteStore::TakeTerm(Term seen, const Holder& self, RunId run) {
  const Term term = seen.Next();
  const Status taken = Transact(Flush::kYes, [&]() -> Status {
    REFIT_RETURN_IF_ERROR(CheckTerm(seen));
    REFIT_RETURN_IF_ERROR(
        connection_->Prepare("UPDATE authority SET term = ?, pid = ?, start_time = ?, boot_id = ?, address = ''")
            .Bind(term.value())
            .Bind(static_cast<std::uint64_t>(self.pid))
            .Bind(self.start_time)
            .Bind(self.boot_id)
            .Run());
    Statement first = connection_->Prepare("SELECT 1 FROM journal LIMIT 1");
    REFIT_ASSIGN_OR_RETURN(const bool begun, first.Step());
    if (!begun) {
      REFIT_RETURN_IF_ERROR(Insert(term, control::RunRecord{run}));
    }
    return Insert(term, control::TermRecord{term});
  });
  return taken.ok() ? Result<Term>(term) : Result<Term>(taken);
}

Status SqliteStore::Announce(Term term, const std::string& address) {
  return Transact(Flush::kNo, [&]() -> Status {
    REFIT_RETURN_IF_ERROR(CheckTerm(term));
    return connection_->Prepare("UPDATE authority SET address = ?").Bind(address).Run();
  });
}

Status SqliteStore::Release(Term term) {
  return Transact(Flush::kNo, [&]() -> Status {
    REFIT_RETURN_IF_ERROR(CheckTerm(term));
    return connection_->Run("UPDATE authority SET address = '', pid = 0");
  });
}

Status SqliteStore::Append(Term term, const control::Record& record) {
  return Transact(control::MustBeDurable(record) ? Flush::kYes : Flush::kNo, [&]() -> Status {
    REFIT_RETURN_IF_ERROR(CheckTerm(term));
    return Insert(term, record);
  });
}

}  // namespace refit::store

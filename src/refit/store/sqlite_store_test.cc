// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0
//
// The file as a file: killed writers, full disks, and what is not ours or not whole is an error that says so.

#include "refit/store/sqlite_store.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sqlite3.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "refit/base/str.h"
#include "refit/store/store_test_records.h"

namespace refit::store {
namespace {

using control::Record;
using testing::HasSubstr;

class SqliteStoreTest : public testing::Test {
 protected:
  SqliteStoreTest() {
    std::string name = std::filesystem::temp_directory_path() / "refit-store-XXXXXX";
    folder_ = mkdtemp(name.data());
  }
  ~SqliteStoreTest() override { std::filesystem::remove_all(folder_); }

  std::string path() const { return StrCat(folder_, "/", kFileName); }

  std::unique_ptr<Store> Open() const {
    auto store = Store::Open(folder_);
    EXPECT_TRUE(store.has_value()) << store.status().ToString();
    return store.has_value() ? *std::move(store) : nullptr;
  }
  Status OpenError() const { return Store::Open(folder_).status(); }

  // As somebody with the sqlite3 program would.
  void Execute(const std::string& sql) const {
    sqlite3* database = nullptr;
    ASSERT_EQ(sqlite3_open(path().c_str(), &database), SQLITE_OK);
    char* error = nullptr;
    EXPECT_EQ(sqlite3_exec(database, sql.c_str(), nullptr, nullptr, &error), SQLITE_OK) << (error ? error : "");
    sqlite3_close(database);
  }

  std::string folder_;
};

TEST_F(SqliteStoreTest, WithoutAFolderItIsKeptInMemory) {
  const auto store = Store::Open("");
  ASSERT_TRUE(store.has_value()) << store.status().ToString();
  const Term term = Take(**store);
  EXPECT_TRUE((*store)->Append(term, Intent(term, 1)).ok());
  EXPECT_EQ(Records(**store).size(), 3U);
}

// RX-JRNL-01, S59: a process that is killed in the middle of its appends; what it was told is written, is there.
TEST_F(SqliteStoreTest, WhatAKilledWriterWasToldIsWritten) {
  for (int round = 0; round < 5; ++round) {
    std::array<int, 2> line{};
    ASSERT_EQ(pipe(line.data()), 0);
    const pid_t child = fork();
    if (child == 0) {
      const auto store = Store::Open(folder_);
      const auto holder = (*store)->ReadHolder();
      const auto term = (*store)->TakeTerm(holder->term, {.pid = getpid()}, kRun);
      for (std::uint32_t n = 1;; ++n) {
        if (!(*store)->Append(*term, Intent(*term, n)).ok() || write(line[1], "!", 1) != 1) {
          _exit(1);
        }
      }
    }
    close(line[1]);
    std::size_t acknowledged = 0;
    std::array<char, 1> byte{};
    const std::size_t enough = 3 + 7 * static_cast<std::size_t>(round);
    while (acknowledged < enough && read(line[0], byte.data(), 1) == 1) {
      ++acknowledged;
    }
    kill(child, SIGKILL);
    int status = 0;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    ASSERT_TRUE(WIFSIGNALED(status));
    while (read(line[0], byte.data(), 1) == 1) {
      ++acknowledged;
    }
    close(line[0]);
    const auto store = Open();
    std::size_t written = 0;
    for (const Record& record : Records(*store)) {
      written = std::holds_alternative<control::TermRecord>(record) ? 0 : written + 1;
    }
    EXPECT_GE(written, acknowledged);
    EXPECT_LE(written, acknowledged + 1);  // the one that nobody heard of
  }
}

// RX-JRNL-03, S63: a full disk is a failure that says nothing about the file, and what was acknowledged stays.
TEST_F(SqliteStoreTest, AFullDiskFailsTheAppendAndLosesNothing) {
  constexpr int kAllAcknowledgedAreThere = 42;
  const pid_t child = fork();
  if (child == 0) {
    signal(SIGXFSZ, SIG_IGN);
    const auto store = Store::Open(folder_);
    const auto term = (*store)->TakeTerm(Term(0), {.pid = getpid()}, kRun);
    const rlimit limit{300'000, 300'000};
    setrlimit(RLIMIT_FSIZE, &limit);
    std::uint32_t n = 0;
    Status status;
    while (status.ok() && n < 10'000) {
      status = (*store)->Append(*term, Intent(*term, ++n));
    }
    const auto records = (*store)->ReadRecords();
    const bool whole = records.has_value() && (records->size() == n + 1 || records->size() == n + 2);
    const bool named = status.message().find(kFileName) != std::string::npos && !status.remedy().empty();
    _exit(whole && named && status.code() != StatusCode::kAborted ? kAllAcknowledgedAreThere : 1);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), kAllAcknowledgedAreThere);
  const auto store = Open();
  const Term term = Take(*store);
  EXPECT_TRUE(store->Append(term, Intent(term, 1)).ok()) << "there is room again";
}

TEST_F(SqliteStoreTest, WhoeverLooksForTheHolderFindsNobodyBeforeTheFirstOne) {
  EXPECT_EQ(Store::OpenExisting(folder_).status().code(), StatusCode::kNotFound);
  EXPECT_FALSE(std::filesystem::exists(path()));
}

// S61: started together on one new directory, one of them has each term.
TEST_F(SqliteStoreTest, SeveralMayBeginTheFileAtOnce) {
  constexpr int kStarters = 4;
  std::array<int, 2> gate{};
  ASSERT_EQ(pipe(gate.data()), 0);
  std::array<pid_t, kStarters> starters{};
  for (pid_t& starter : starters) {
    starter = fork();
    if (starter == 0) {
      char byte = 0;
      close(gate[1]);
      static_cast<void>(!read(gate[0], &byte, 1));  // until all of them wait here
      const auto store = Store::Open(folder_);
      while (store.has_value()) {
        const auto holder = (*store)->ReadHolder();
        const auto term = (*store)->TakeTerm(holder->term, {.pid = getpid()}, kRun);
        if (term.has_value() || term.status().code() != StatusCode::kAborted) {
          _exit(term.has_value() ? static_cast<int>(term->value()) : 0);
        }
      }
      _exit(0);
    }
  }
  close(gate[0]);
  close(gate[1]);
  std::vector<int> terms;
  for (const pid_t starter : starters) {
    int status = 0;
    ASSERT_EQ(waitpid(starter, &status, 0), starter);
    terms.push_back(WIFEXITED(status) ? WEXITSTATUS(status) : -1);
  }
  EXPECT_THAT(terms, testing::UnorderedElementsAre(1, 2, 3, 4));
  EXPECT_EQ(Records(*Open()).size(), 1U + kStarters);
}

// ---- S63, S64: files and folders that are not what they must be (RX-JRNL-02)

TEST_F(SqliteStoreTest, AFileThatIsNoDatabaseIsNamed) {
  std::ofstream(path()) << std::string(4096, 'x');
  EXPECT_EQ(OpenError().code(), StatusCode::kDataLoss) << OpenError().ToString();
  EXPECT_THAT(OpenError().message(), HasSubstr(path()));
  EXPECT_THAT(OpenError().remedy(), HasSubstr("another state directory"));
}

TEST_F(SqliteStoreTest, AnotherProgramsDatabaseIsLeftAlone) {
  Execute("CREATE TABLE songs(name TEXT)");
  EXPECT_THAT(OpenError().message(), HasSubstr("another program"));
  Execute("INSERT INTO songs VALUES('still here')");
}

TEST_F(SqliteStoreTest, ANewerSchemaIsRefused) {
  Open();
  Execute("PRAGMA user_version = 3");
  EXPECT_THAT(OpenError().message(), HasSubstr("schema 3, known is 2"));
}

TEST_F(SqliteStoreTest, AMissingRecordIsNoticed) {
  const auto store = Open();
  const Term term = Take(*store);
  ASSERT_TRUE(store->Append(term, Intent(term, 1)).ok());
  ASSERT_TRUE(store->Append(term, Intent(term, 2)).ok());
  Execute("DELETE FROM journal WHERE position = 3");
  const auto records = store->ReadRecords();
  EXPECT_EQ(records.status().code(), StatusCode::kDataLoss);
  EXPECT_THAT(records.status().message(), HasSubstr("record 3 is missing"));
}

TEST_F(SqliteStoreTest, AFlippedBitIsNoticed) {
  const auto store = Open();
  const Term term = Take(*store);
  ASSERT_TRUE(store->Append(term, Intent(term, 1)).ok());
  Execute("UPDATE journal SET payload = CAST(replace(payload, 'm', 'n') AS BLOB) WHERE position = 3");
  const auto records = store->ReadRecords();
  EXPECT_EQ(records.status().code(), StatusCode::kDataLoss);
  EXPECT_THAT(records.status().message(), HasSubstr("record 3 is not what was written"));
}

TEST_F(SqliteStoreTest, DamagedPagesAreNoCrash) {
  {
    const auto store = Open();
    const Term term = Take(*store);
    for (std::uint32_t n = 1; n < 200; ++n) {
      ASSERT_TRUE(store->Append(term, Intent(term, n)).ok());
    }
  }
  const auto size = std::filesystem::file_size(path());
  for (std::uint64_t at = 100; at < size; at += 1777) {
    {
      std::fstream file(path(), std::ios::in | std::ios::out | std::ios::binary);
      file.seekp(static_cast<std::streamoff>(at));
      file.write("\xA5\x5A\xFF", 3);
    }
    if (auto store = Store::Open(folder_); store.has_value()) {
      static_cast<void>((*store)->ReadHolder());
      static_cast<void>((*store)->ReadRecords());
    }
  }
  EXPECT_FALSE(OpenError().ok() && Open()->ReadRecords().has_value());
}

TEST_F(SqliteStoreTest, AFolderThatIsALinkOrOpenToOthersIsRefused) {
  const std::string link = folder_ + "/link";
  std::filesystem::create_directory(folder_ + "/real");
  std::filesystem::create_directory_symlink(folder_ + "/real", link);
  EXPECT_THAT(Store::Open(link).status().message(), HasSubstr("link"));
  ASSERT_EQ(chmod(folder_.c_str(), 0777), 0);
  EXPECT_THAT(OpenError().message(), HasSubstr("other users"));
  ASSERT_EQ(chmod(folder_.c_str(), 0700), 0);
  std::ofstream(folder_ + "/file");
  EXPECT_FALSE(Store::Open(folder_ + "/file").has_value());
  EXPECT_FALSE(Store::Open(folder_ + "/file/below").has_value());
  EXPECT_TRUE(Store::Open(folder_ + "/new/below").has_value());
}

}  // namespace
}  // namespace refit::store

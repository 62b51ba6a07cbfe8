// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0
//
// Who holds the term is a process: it is dead before somebody else has it, and nobody else is ever killed for it.

#include "refit/runtime/takeover.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <optional>
#include <string>

#include "refit/exec/clock.h"
#include "tests/support/temp_folder.h"

namespace refit::runtime {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::HasSubstr;

// A process that holds the term of a state directory and does nothing else. Ends with the test.
class OtherController {
 public:
  explicit OtherController(const std::string& folder) {
    std::array<int, 2> line{};
    EXPECT_EQ(pipe(line.data()), 0);
    pid_ = fork();
    if (pid_ == 0) {
      const auto reign = TakeOver({.state_directory = folder});
      const char byte = reign.has_value() ? '!' : '?';
      static_cast<void>(!write(line[1], &byte, 1));
      while (true) {
        pause();
      }
    }
    close(line[1]);
    char byte = 0;
    EXPECT_EQ(read(line[0], &byte, 1), 1);
    EXPECT_EQ(byte, '!');
    close(line[0]);
  }
  ~OtherController() {
    if (!Ended()) {
      kill(pid_, SIGKILL);
      waitpid(pid_, nullptr, 0);
    }
  }
  void Signal(int signal) const { kill(pid_, signal); }
  bool Ended() {
    ended_ = ended_ || waitpid(pid_, &status_, WNOHANG) == pid_;
    return ended_;
  }
  int ended_by() const { return WIFSIGNALED(status_) ? WTERMSIG(status_) : 0; }

 private:
  pid_t pid_ = 0;
  bool ended_ = false;
  int status_ = 0;
};

store::Holder HolderOf(const std::string& folder) {
  const auto store = store::Store::OpenExisting(folder);
  EXPECT_TRUE(store.has_value()) << store.status().ToString();
  return store.value()->ReadHolder().value();
}

TEST(TakeOver, TheFirstControllerBeginsARun) {
  const test::TempFolder folder;
  const auto reign = TakeOver({.state_directory = folder / "state"});
  ASSERT_TRUE(reign.has_value()) << reign.status().ToString();
  EXPECT_EQ(reign->term, Term(1));
  EXPECT_FALSE(reign->run.is_zero());
  EXPECT_FALSE(reign->recovered.has_value());
  EXPECT_EQ(HolderOf(folder / "state").pid, getpid());
}

// RX-LEAD-05: killed at any point and started again, it need not wait for anybody.
TEST(TakeOver, ADeadPredecessorIsSucceededAtOnce) {
  const test::TempFolder folder;
  RunId run;
  {
    OtherController first(folder / "state");
    run = control::Replay(*store::Store::OpenExisting(folder / "state").value()->ReadRecords())->run;
    first.Signal(SIGKILL);
    ASSERT_TRUE(exec::WaitUntil([&first] { return first.Ended(); }, exec::Now() + seconds(10)));
  }
  const Instant began = exec::Now();
  const auto reign = TakeOver({.state_directory = folder / "state", .takeover_after = seconds(60)});
  ASSERT_TRUE(reign.has_value()) << reign.status().ToString();
  EXPECT_LT(exec::Now() - began, seconds(10));
  EXPECT_EQ(reign->term, Term(2));
  EXPECT_EQ(reign->run, run);
  ASSERT_TRUE(reign->recovered.has_value());
  EXPECT_EQ(reign->recovered->term, Term(2));
}

// RX-LEAD-05, S60, S61: one that lives, stopped or not, has ended before the term is taken.
TEST(TakeOver, ALivingPredecessorIsKilledFirst) {
  for (const bool frozen : {false, true}) {
    const test::TempFolder folder;
    OtherController first(folder / "state");
    if (frozen) {
      first.Signal(SIGSTOP);
    }
    const auto reign = TakeOver({.state_directory = folder / "state", .takeover_after = milliseconds(100)});
    ASSERT_TRUE(reign.has_value()) << reign.status().ToString();
    EXPECT_TRUE(first.Ended());
    EXPECT_EQ(reign->term, Term(2));
  }
}

TEST(TakeOver, APredecessorThatEndsByItselfInTimeIsNotKilled) {
  const test::TempFolder folder;
  OtherController first(folder / "state");
  const store::Holder holder = HolderOf(folder / "state");
  first.Signal(SIGTERM);
  EXPECT_TRUE(EndHolder(holder, seconds(60)).ok());
  EXPECT_TRUE(first.Ended());
  EXPECT_EQ(first.ended_by(), SIGTERM);
}

// RX-LEAD-05 ✗ by bare pid: whoever has the number now is left alone.
TEST(EndHolder, NobodyIsKilledForAnothersPid) {
  const test::TempFolder folder;
  OtherController bystander(folder / "state");
  store::Holder holder = HolderOf(folder / "state");
  holder.start_time -= 1;
  EXPECT_TRUE(EndHolder(holder, milliseconds(1)).ok());
  holder = HolderOf(folder / "state");
  holder.boot_id = "of another boot";
  EXPECT_TRUE(EndHolder(holder, milliseconds(1)).ok());
  EXPECT_FALSE(bystander.Ended());
}

TEST(EndHolder, ThisProcessDoesNotKillItself) {
  EXPECT_THAT(EndHolder(ThisHolder(), milliseconds(1)).message(), HasSubstr("is this process"));
}

// RX-JRNL-02: whoever cannot believe the journal changes nothing.
TEST(TakeOver, NobodyIsKilledForAJournalThatCannotBeRead) {
  const test::TempFolder folder;
  OtherController first(folder / "state");
  {
    const auto store = store::Store::OpenExisting(folder / "state");
    const control::CommitRecord commit{
        .request_id = "r", .version = WeightVersion(3), .digest = {}, .source = "m", .members = {}, .excluded = {}};
    ASSERT_TRUE((*store)->Append(Term(1), commit).ok());  // without its INTENT
  }
  const auto reign = TakeOver({.state_directory = folder / "state", .takeover_after = milliseconds(1)});
  EXPECT_EQ(reign.status().code(), StatusCode::kDataLoss) << reign.status().ToString();
  EXPECT_FALSE(first.Ended());
  EXPECT_EQ(HolderOf(folder / "state").term, Term(1));
}

}  // namespace
}  // namespace refit::runtime

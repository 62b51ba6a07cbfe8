// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0

#include "refit/engine/process/child_process.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <thread>
#include <utility>

#include "refit/base/str.h"
#include "refit/exec/clock.h"
#include "refit/exec/mailbox.h"
#include "tests/support/plain_process.h"

namespace refit::engine::process {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using ::testing::HasSubstr;

class ChildProcessTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = ::testing::TempDir() + "child-XXXXXX";
    ASSERT_NE(mkdtemp(pattern.data()), nullptr);
    log_ = pattern + "/log";
  }
  Result<ChildProcess> Shell(const std::string& script) {
    return ChildProcess::Start({.arguments = {"/bin/sh", "-c", script},
                                .environment = {"CHILD_TEST=ours"},
                                .log_path = log_,
                                .ready_prefix = "ready "});
  }
  std::string Log() const {
    std::ifstream file(log_);
    return {std::istreambuf_iterator<char>(file), {}};
  }
  static Instant In(Duration time) { return exec::Now() + time; }
  static bool GoneSoon(int pid) {
    return exec::WaitUntil([pid] { return test::Gone(pid); }, In(seconds(10)));
  }

  std::string log_;
};

TEST_F(ChildProcessTest, TheReadyLineIsFoundBetweenOtherLinesAndEverythingIsLogged) {
  auto child = Shell("echo starting; echo warning >&2; printf 'ready 127.0.0.1:'; echo 4711; echo more; sleep 60");
  ASSERT_TRUE(child.has_value()) << child.status().ToString();
  const auto ready = child->WaitReady(In(seconds(10)));
  ASSERT_TRUE(ready.has_value()) << ready.status().ToString();
  EXPECT_EQ(*ready, "127.0.0.1:4711");
  EXPECT_TRUE(child->running());
  EXPECT_EQ(child->exit_text(), "");
  EXPECT_THAT(Log(), HasSubstr("starting\nwarning\nready 127.0.0.1:4711\n"));
}

TEST_F(ChildProcessTest, AnEarlierLifesReadyLineInTheSameLogDoesNotCount) {
  std::ofstream(log_) << "ready old\n";
  auto child = Shell("echo ready new; sleep 60");
  ASSERT_TRUE(child.has_value());
  const auto ready = child->WaitReady(In(seconds(10)));
  ASSERT_TRUE(ready.has_value());
  EXPECT_EQ(*ready, "new");
}

TEST_F(ChildProcessTest, AChildThatEndsBeforeItIsReadyIsReportedWithItsLastLines) {
  auto child = Shell("echo first; echo 'no such model' >&2; exit 3");
  ASSERT_TRUE(child.has_value());
  const auto ready = child->WaitReady(In(seconds(10)));
  ASSERT_FALSE(ready.has_value());
  EXPECT_EQ(ready.status().code(), StatusCode::kUnavailable);
  EXPECT_THAT(ready.status().message(), HasSubstr("exit 3"));
  EXPECT_THAT(ready.status().message(), HasSubstr("no such model"));
  EXPECT_EQ(ready.status().message().find('\n'), std::string::npos);
  EXPECT_EQ(child->exit_text(), "exit 3");
}

TEST_F(ChildProcessTest, ASilentChildMeetsTheDeadline) {
  auto child = Shell("sleep 60");
  ASSERT_TRUE(child.has_value());
  const auto ready = child->WaitReady(In(milliseconds(50)));
  ASSERT_FALSE(ready.has_value());
  EXPECT_EQ(ready.status().code(), StatusCode::kDeadlineExceeded);
}

TEST_F(ChildProcessTest, AProgramThatCannotBeStartedIsNamed) {
  const auto child =
      ChildProcess::Start({.arguments = {"/no/such/program"}, .environment = {}, .log_path = log_, .ready_prefix = {}});
  ASSERT_FALSE(child.has_value());
  EXPECT_THAT(child.status().message(), HasSubstr("/no/such/program: No such file"));
}

TEST_F(ChildProcessTest, ALogThatCannotBeOpenedIsNamed) {
  log_ = "/no/such/folder/log";
  const auto child = Shell("true");
  ASSERT_FALSE(child.has_value());
  EXPECT_THAT(child.status().message(), HasSubstr("/no/such/folder/log"));
}

TEST_F(ChildProcessTest, TheEnvironmentIsOursPlusWhatWasGiven) {
  setenv("CHILD_TEST", "theirs", 1);
  setenv("CHILD_TEST_KEPT", "kept", 1);
  auto child = Shell("echo ready $CHILD_TEST $CHILD_TEST_KEPT");
  ASSERT_TRUE(child.has_value());
  const auto ready = child->WaitReady(In(seconds(10)));
  ASSERT_TRUE(ready.has_value()) << ready.status().ToString();
  EXPECT_EQ(*ready, "ours kept");
}

TEST_F(ChildProcessTest, TerminateIsPoliteThenFirmAndIdempotent) {
  auto polite = Shell("echo ready; sleep 60");
  ASSERT_TRUE(polite.has_value());
  EXPECT_TRUE(polite->Terminate(In(seconds(10))).ok());
  EXPECT_EQ(polite->exit_text(), "signal 15");
  EXPECT_TRUE(polite->Terminate(In(seconds(10))).ok());

  auto stubborn = Shell("trap '' TERM; echo ready stubborn; while :; do sleep 1; done");
  ASSERT_TRUE(stubborn.has_value());
  ASSERT_TRUE(stubborn->WaitReady(In(seconds(10))).has_value());
  EXPECT_EQ(stubborn->Terminate(In(milliseconds(100))).code(), StatusCode::kDeadlineExceeded);
  EXPECT_EQ(stubborn->exit_text(), "signal 9");
  stubborn->Kill();
}

// kDaemon: a grandchild with a session of its own, which its parent leaves behind.
constexpr char kDaemon[] = "(setsid sleep 60 & echo ready $!); sleep 60";

TEST_F(ChildProcessTest, TheWholeTreeDiesWithItsOwnerAlsoWhoLeftTheGroup) {
  for (const char* const script : {"sleep 60 & echo ready $!; wait", kDaemon}) {
    int grandchild = 0;
    {
      auto child = Shell(script);
      ASSERT_TRUE(child.has_value());
      const auto ready = child->WaitReady(In(seconds(10)));
      ASSERT_TRUE(ready.has_value());
      grandchild = std::stoi(*ready);
      ASSERT_FALSE(test::Gone(grandchild));
      ChildProcess moved = *std::move(child);
      EXPECT_TRUE(moved.running());
    }
    EXPECT_TRUE(test::Gone(grandchild)) << "it was not waited for";
  }
}

// RC-KILL-06: what the child leaves behind when it ends by itself is not left to the host.
TEST_F(ChildProcessTest, WhatAnEndedChildLeftBehindIsEndedToo) {
  auto child = Shell("(setsid sleep 60 & echo ready $!)");
  ASSERT_TRUE(child.has_value());
  const auto ready = child->WaitReady(In(seconds(10)));
  ASSERT_TRUE(ready.has_value()) << ready.status().ToString();
  EXPECT_TRUE(GoneSoon(std::stoi(*ready)));
  EXPECT_TRUE(child->Kill(In(seconds(10))));
  EXPECT_EQ(child->exit_text(), "exit 0");
}

// Contract II.2, E4: a death is news at once, not at the next look.
TEST_F(ChildProcessTest, ADeathIsHeardWithinAHundredMilliseconds) {
  exec::Mailbox<std::pair<Instant, std::string>> heard(1);
  ChildOptions options{.arguments = {"/bin/sleep", "60"}, .environment = {}, .log_path = log_, .ready_prefix = {}};
  options.on_end = [&heard](const std::string& exit_text) { static_cast<void>(heard.Push({exec::Now(), exit_text})); };
  auto child = ChildProcess::Start(options);
  ASSERT_TRUE(child.has_value());
  const Instant killed = exec::Now();
  ASSERT_EQ(kill(child->pid(), SIGKILL), 0);
  const auto news = heard.Pop(In(seconds(10)));
  ASSERT_TRUE(news.has_value());
  EXPECT_EQ(news->second, "signal 9");
  EXPECT_LT(news->first - killed, milliseconds(100));
  RecordProperty("microseconds", std::to_string((news->first - killed).count() / 1000));
}

// RC-KILL-01: bounded, whatever the child does.
TEST_F(ChildProcessTest, AStoppedChildIsKilledAtTheDeadline) {
  auto child = Shell("echo ready now; exec sleep 60");  // a shell that waits for its vfork does not stop
  ASSERT_TRUE(child.has_value());
  ASSERT_TRUE(child->WaitReady(In(seconds(10))).has_value());
  ASSERT_EQ(kill(-child->pid(), SIGSTOP), 0);
  ASSERT_TRUE(exec::WaitUntil([&] { return test::StateOf(child->pid()) == 'T'; }, In(seconds(10))));
  EXPECT_EQ(child->Terminate(In(milliseconds(100))).code(), StatusCode::kDeadlineExceeded);
  EXPECT_EQ(child->exit_text(), "signal 9");
}

TEST_F(ChildProcessTest, AChildWhoseSupervisorIsKilledDiesWithIt) {
  auto child = Shell("echo ready $PPID; sleep 60");
  ASSERT_TRUE(child.has_value());
  const auto ready = child->WaitReady(In(seconds(10)));
  ASSERT_TRUE(ready.has_value());
  ASSERT_EQ(kill(std::stoi(*ready), SIGKILL), 0);
  EXPECT_TRUE(exec::WaitUntil([&] { return !child->running(); }, In(seconds(10))));
  EXPECT_TRUE(GoneSoon(child->pid()));
  EXPECT_TRUE(child->Kill(In(seconds(10))));
}

TEST_F(ChildProcessTest, TheChildOutlivesTheThreadThatStartedIt) {
  Result<ChildProcess> child = Internal("not started");
  std::thread([&] { child = Shell("echo ready; sleep 60"); }).join();
  ASSERT_TRUE(child.has_value());
  EXPECT_FALSE(exec::WaitUntil([&] { return !child->running(); }, In(milliseconds(200))));
}

// Not a test of its own: the parent in the next one, which runs it in another process.
TEST_F(ChildProcessTest, DISABLED_StartsAChildAndWaits) {
  auto child = Shell(kDaemon);
  ASSERT_TRUE(child.has_value());
  const auto grandchild = child->WaitReady(In(seconds(10)));
  ASSERT_TRUE(grandchild.has_value());
  std::printf("ready %d %s\n", child->pid(), grandchild->c_str());
  std::fflush(stdout);
  pause();
}

// RC-KILL-06: kill -9 of the owner. The server and its own processes, also those that left its group and session.
TEST_F(ChildProcessTest, TheWholeTreeIsGoneWithinTwoSecondsOfItsOwnersKill) {
  test::PlainProcess owner(
      {"/proc/self/exe", "--gtest_also_run_disabled_tests", "--gtest_filter=*DISABLED_StartsAChildAndWaits"}, log_);
  const std::string ready = owner.Await("ready ", In(seconds(10)));
  ASSERT_FALSE(ready.empty());
  const int child = std::stoi(ready);
  const int grandchild = std::stoi(ready.substr(ready.find(' ')));
  EXPECT_FALSE(test::Gone(child));
  EXPECT_FALSE(test::Gone(grandchild));
  const Instant killed = exec::Now();
  owner.Kill();
  EXPECT_TRUE(exec::WaitUntil([&] { return test::Gone(child) && test::Gone(grandchild); }, killed + seconds(2)));
  RecordProperty("microseconds", std::to_string((exec::Now() - killed).count() / 1000));
}

}  // namespace
}  // namespace refit::engine::process

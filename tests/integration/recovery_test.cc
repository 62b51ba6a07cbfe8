// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0
//
// Engines that die or hang, over real processes: found, ended, launched again, brought up to date, and nobody else
// touched.

#include <signal.h>

#include <cstdlib>
#include <fstream>
#include <set>

#include "refit/engine/process/port_list.h"
#include "refit/engine/sglang/sglang_engine.h"
#include "tests/integration/fleet.h"
#include "tests/support/plain_process.h"

namespace refit::test {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

// One failed probe is enough, so that a test does not take three timeouts.
sync::Profile Hasty() {
  sync::Profile profile = sync::kResilient;
  profile.probe_failures = 1;
  return profile;
}

void Signal(const rpc::SlotReport& slot, int signal) {
  ASSERT_GT(slot.engine_pid, 0);
  ASSERT_EQ(kill(static_cast<pid_t>(slot.engine_pid), signal), 0);
}

std::string FirstLine(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

// An agent as its users start it, in a process of its own.
std::vector<std::string> AgentCommand(const Fleet& fleet, std::uint32_t slot) {
  return {REFIT_PROGRAM,
          "agent",
          "--slot",
          std::to_string(slot),
          "--controller",
          fleet.controller_address(),
          "--tp",
          "1",
          "--engine-program",
          REFIT_ENGINE_PROGRAM,
          "--run-directory",
          fleet.folder() / StrCat("agent-", slot),
          "--",
          "--model",
          fleet.model(),
          "--family",
          "c",
          "--load-format",
          "dummy"};
}

// RC-REC-07, -08, RC-BIND-02, -04, RX-MEM-02, settled C13: without anybody's sync.
TEST(Recovery, AKilledEngineIsReplacedAndCatchesUpAndItsSurvivorIsLeftAlone) {
  const char* const nixl = std::getenv("REFIT_NIXL");  // the wheel nixl-cu13, where there is one
  std::vector<std::string> transports = {"shm", "loopback"};
  if (nixl != nullptr && *nixl != '\0') {
    transports.emplace_back("nixl");
  }
  for (const std::string& transport : transports) {
    Fleet fleet({.tp_size = 1,
                 .transport = transport,
                 .nixl_library = transport == "nixl" ? nixl : "",
                 .use_fault_tolerance = true});
    ASSERT_TRUE(fleet.Sync().status.ok());
    const rpc::FleetReport before = fleet.GetStatus();
    Instant killed{};
    const auto replaced = HandshakesOf([&] {
      killed = exec::Now();
      Signal(before.slots[0], SIGKILL);
      const rpc::SlotReport back = fleet.AwaitState(0, "serving", before.slots[0].incarnation);
      EXPECT_EQ(back.version, WeightVersion(1));
      EXPECT_NE(back.engine_url, before.slots[0].engine_url);  // RC-REC-09
    });
    RecordProperty(StrCat("milliseconds_to_return_", transport),
                   std::to_string((exec::Now() - killed) / milliseconds(1)));
    EXPECT_EQ(replaced, std::vector<std::string>{"engine 0: link to policy rank 0"});
    const rpc::SlotReport survivor = fleet.GetStatus().slots[1];
    EXPECT_EQ(survivor.incarnation, before.slots[1].incarnation);
    EXPECT_EQ(survivor.engine_pid, before.slots[1].engine_pid);
    EXPECT_TRUE(fleet.Verify().verified);
    EXPECT_EQ(HandshakesOf([&] { EXPECT_TRUE(fleet.Sync().status.ok()); }), std::vector<std::string>());
  }
}

// Settled C10's other half: what is not a probe's to find is found at once (contract II.2, E4).
TEST(Recovery, TheControllerKnowsOfADeathWithinAHundredMilliseconds) {
  Fleet fleet({.policies = 1, .engines = 1, .tp_size = 1, .use_fault_tolerance = true});
  ASSERT_TRUE(fleet.Sync().status.ok());
  const rpc::SlotReport slot = fleet.GetStatus().slots[0];
  const Instant killed = exec::Now();
  Signal(slot, SIGKILL);
  ASSERT_TRUE(exec::WaitUntil([&] { return fleet.GetStatus().slots[0].state != "serving"; }, killed + seconds(10)));
  const Duration heard = exec::Now() - killed;
  EXPECT_LT(heard, milliseconds(100));
  RecordProperty("microseconds", std::to_string(heard.count() / 1000));
}

// RC-MON-02, RC-KILL-01, -05: it answers nobody, not even a request to end.
TEST(Recovery, AnEngineThatHangsIsFoundByItsProbesEndedAndReplaced) {
  Fleet fleet({.policies = 1, .engines = 1, .tp_size = 1, .profile = Hasty(), .use_fault_tolerance = true});
  ASSERT_TRUE(fleet.Sync().status.ok());
  const rpc::SlotReport hung = fleet.GetStatus().slots[0];
  Signal(hung, SIGSTOP);
  const rpc::SlotReport back = fleet.AwaitState(0, "serving", hung.incarnation);
  EXPECT_TRUE(Gone(static_cast<int>(hung.engine_pid)));
  EXPECT_EQ(back.version, WeightVersion(1));
  EXPECT_TRUE(fleet.Verify().verified);
}

// RC-KILL-07: what was meant for the life before is refused, and changes nothing.
TEST(Recovery, TheKeyOfTheLaunchBeforeOpensNothing) {
  Fleet fleet({.policies = 1, .engines = 1, .tp_size = 1, .use_fault_tolerance = true});
  ASSERT_TRUE(fleet.Sync().status.ok());
  const rpc::SlotReport before = fleet.GetStatus().slots[0];
  Signal(before, SIGKILL);
  const rpc::SlotReport back = fleet.AwaitState(0, "serving", before.incarnation);
  const std::string old_key = FirstLine(fleet.folder() / "agent-0/engine-0-1.key");
  ASSERT_FALSE(old_key.empty());
  EXPECT_NE(old_key, FirstLine(fleet.folder() / "agent-0/engine-0-2.key"));
  const auto late = engine::sglang::ConnectSglang({.url = back.engine_url, .admin_key = old_key});
  ASSERT_TRUE(late.has_value());
  const sync::Answer answer = (*late)->Call(sync::Operation::kPause, WeightVersion(0), seconds(5));
  EXPECT_EQ(answer.kind, sync::AnswerKind::kRefused);
  EXPECT_NE(answer.message.find("401"), std::string::npos) << answer.message;
  EXPECT_TRUE((*late)->Probe(seconds(5)).ok());  // nobody is paused
}

// RC-KILL-06: kill -9 of the agent. RC-REC-09: its successor does not use its ports again.
TEST(Recovery, AKilledAgentTakesItsEngineWithItAndItsSuccessorServesAgain) {
  Fleet fleet({.policies = 1, .engines = 1, .tp_size = 1, .profile = Hasty(), .use_fault_tolerance = true});
  fleet.StopAgent(0);
  rpc::SlotReport first;
  const std::string log = fleet.folder() / "agent.log";
  {
    PlainProcess agent(AgentCommand(fleet, 0), log);
    ASSERT_FALSE(agent.Await("refit agent: ready", exec::Now() + seconds(20)).empty()) << FirstLine(log);
    ASSERT_TRUE(fleet.Sync().status.ok());
    first = fleet.GetStatus().slots[0];
    const Instant killed = exec::Now();
    agent.Kill();
    EXPECT_TRUE(exec::WaitUntil([&] { return Gone(static_cast<int>(first.engine_pid)); }, killed + seconds(2)));
    RecordProperty("microseconds_until_gone", std::to_string((exec::Now() - killed).count() / 1000));
  }
  ASSERT_TRUE(
      exec::WaitUntil([&] { return fleet.GetStatus().slots[0].state != "serving"; }, exec::Now() + seconds(10)));
  PlainProcess successor(AgentCommand(fleet, 0), log);
  const rpc::SlotReport second = fleet.AwaitState(0, "serving", first.incarnation);
  EXPECT_EQ(second.version, WeightVersion(1));
  std::ifstream ports(engine::process::PortListPath(fleet.GetStatus().run));
  std::set<int> taken;
  std::size_t lines = 0;
  for (int port = 0; ports >> port; ++lines) {
    taken.insert(port);
  }
  EXPECT_EQ(taken.size(), lines);
  EXPECT_GE(lines, 3U);  // of the agent in here, too
}

// RC-ROLE-06, RC-REC-03: profile strict waits for the next sync, which launches, binds and refits.
TEST(Recovery, InProfileStrictTheNextSyncLaunchesWhatDied) {
  Fleet fleet({.tp_size = 1, .profile = sync::kStrict, .use_fault_tolerance = true});
  ASSERT_TRUE(fleet.Sync().status.ok());
  const rpc::SlotReport before = fleet.GetStatus().slots[0];
  Signal(before, SIGKILL);
  EXPECT_EQ(fleet.AwaitState(0, "empty", before.incarnation).version, WeightVersion(1));
  const rpc::SyncReport report = fleet.Sync();
  ASSERT_TRUE(report.status.ok()) << Describe(report);
  EXPECT_EQ(report.version, WeightVersion(2));
  EXPECT_TRUE(fleet.Verify().verified);
}

}  // namespace
}  // namespace refit::test

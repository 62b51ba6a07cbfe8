// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0

#include "refit/device/shared_memory.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <thread>

#include "refit/base/str.h"
#include "refit/device/copy.h"

namespace refit::device {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::Not;

bool Exists(const std::string& name) { return access(("/dev/shm" + name).c_str(), F_OK) == 0; }

// The identity of a process that has ended and was reaped.
ProcessIdentity DeadProcess() {
  int ends[2];
  EXPECT_EQ(pipe(ends), 0);
  const pid_t child = fork();
  if (child == 0) {
    const ProcessIdentity self = ThisProcess();
    _exit(write(ends[1], &self, sizeof(self)) == sizeof(self) ? 0 : 1);
  }
  ProcessIdentity identity;
  EXPECT_EQ(read(ends[0], &identity, sizeof(identity)), static_cast<ssize_t>(sizeof(identity)));
  EXPECT_EQ(waitpid(child, nullptr, 0), child);
  close(ends[0]);
  close(ends[1]);
  return identity;
}

TEST(OwnedName, CarriesPidAndStartTime) {
  const std::string name = OwnedName("load-0");
  const ProcessIdentity self = ThisProcess();
  EXPECT_TRUE(name.starts_with(StrCat("/refit-", getpid(), "-", self.start_time, "-n"))) << name;
  EXPECT_TRUE(name.ends_with("-load-0")) << name;
  EXPECT_TRUE(CountsPidsAsWeDo(name));
  EXPECT_FALSE(CountsPidsAsWeDo(StrCat("/refit-", getpid(), "-", self.start_time, "-n1-load-0")));
  EXPECT_EQ(OwnerOf(name), self);
  EXPECT_TRUE(IsRunning(self));
  EXPECT_FALSE(IsRunning({self.pid, self.start_time + 1}));  // a pid that was used again
}

// An agent's further name for a live policy worker's object goes with the agent (settled D2).
TEST(ProcessIdentity, IsKnownWithoutADescriptor) {
  const ProcessIdentity dead = DeadProcess();
  const ProcessIdentity self = ThisProcess();
  rlimit usual = {};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &usual), 0);
  const rlimit none = {0, usual.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &none), 0);
  EXPECT_EQ(ThisProcess(), self);
  EXPECT_TRUE(IsRunning(self)) << "else its shared memory would be swept";
  EXPECT_FALSE(IsRunning(dead));
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &usual), 0);
}

TEST(SweepDeadOwners, TakesADeadOwnersNameOfALiveObject) {
  const ProcessIdentity dead = DeadProcess();
  const auto object = SharedMemory::Create(OwnedName("shared"), 4096);
  ASSERT_TRUE(object.has_value());
  const std::string mine = (*object)->name();
  const std::string tag = mine.substr(mine.find("-n"), mine.rfind("-shared") - mine.find("-n"));
  const std::string alias = StrCat("/refit-", dead.pid, "-", dead.start_time, tag, "-alias");
  ASSERT_EQ(link(StrCat("/dev/shm", mine).c_str(), StrCat("/dev/shm", alias).c_str()), 0);
  const std::vector<std::string> removed = SweepDeadOwners();
  EXPECT_NE(std::find(removed.begin(), removed.end(), alias), removed.end());
  EXPECT_TRUE(SharedMemory::Open(mine, 4096).has_value());
}

TEST(OwnerOf, RefusesEveryOtherText) {
  for (const std::string_view text :
       {"", "/", "/refit-", "/refit-1", "/refit-1-2", "/refit-1-2-", "refit-1-2-x", "/refit-1-2-../x", "/refit-1-2-a/b",
        "/refit-x-2-a", "/refit--1-2-a", "/refit-1--2-a", "/refit-99999999999-2-a",
        "/refit-1-99999999999999999999999-a", "/psm_abc", "/refit-1-2-a b", "/refit-1-2-\n", "/refit- 1-2-a",
        "/refit-+1-2-a"}) {
    EXPECT_FALSE(OwnerOf(text).has_value()) << text;
  }
  EXPECT_FALSE(OwnerOf("/refit-1-2-" + std::string(4000, 'a')).has_value());
  EXPECT_TRUE(OwnerOf("/refit-1-2-a-B3").has_value());
}

TEST(SharedMemory, IsSeenByWhoOpensItAndLeavesNoName) {
  const std::string name = OwnedName("seen");
  {
    auto created = SharedMemory::Create(name, 10'000);
    ASSERT_TRUE(created.ok()) << created.status().ToString();
    auto opened = SharedMemory::Open(name, 10'000);
    ASSERT_TRUE(opened.ok()) << opened.status().ToString();
    (*created)->bytes()[9999] = std::byte{42};
    EXPECT_EQ((*opened)->bytes()[9999], std::byte{42});
    EXPECT_EQ(SharedMemory::Create(name, 10).status().code(), StatusCode::kAlreadyExists);
    opened->reset();
    EXPECT_TRUE(Exists(name));  // who only opened it does not remove the name
  }
  EXPECT_FALSE(Exists(name));
}

TEST(SharedMemory, RefusesAnotherSizeAndForeignNames) {
  auto created = SharedMemory::Create(OwnedName("size"), 4096);
  ASSERT_TRUE(created.ok());
  EXPECT_EQ(SharedMemory::Open((*created)->name(), 4097).status().code(), StatusCode::kFailedPrecondition);
  EXPECT_EQ(SharedMemory::Open((*created)->name(), 0).status().code(), StatusCode::kFailedPrecondition);
  EXPECT_EQ(SharedMemory::Open(OwnedName("absent"), 1).status().code(), StatusCode::kNotFound);
  EXPECT_EQ(SharedMemory::Open("/../../etc/passwd", 1).status().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(SharedMemory::Create("/other", 1).status().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(SharedMemory::Create(OwnedName("empty"), 0).status().code(), StatusCode::kInvalidArgument);
}

// RC-PAY-10: the error names need, free and remedy, and nothing is left behind.
TEST(SharedMemory, SaysWhatIsMissingWhenSpaceIsShort) {  // S66
  const std::string name = OwnedName("huge");
  const auto created = SharedMemory::Create(name, ByteCount{1} << 50);
  ASSERT_FALSE(created.ok());
  EXPECT_EQ(created.status().code(), StatusCode::kResourceExhausted);
  EXPECT_THAT(created.status().message(), HasSubstr("needs 1073741824.0 MiB, /dev/shm has "));
  EXPECT_THAT(created.status().remedy(), HasSubstr("--shm-size"));
  EXPECT_FALSE(Exists(name));
}

// The same on a /dev/shm of 1 MiB, as a container without --shm-size has of 64.
TEST(SharedMemory, WorksUpToTheLastByteOfATinyFolder) {
  const pid_t child = fork();
  if (child == 0) {
    if (unshare(CLONE_NEWNS) != 0 || mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0 ||
        mount("tmpfs", "/dev/shm", "tmpfs", 0, "size=1m") != 0) {
      _exit(77);
    }
    auto fits = SharedMemory::Create(OwnedName("fits"), 700 * kKiB);
    const auto short_of = SharedMemory::Create(OwnedName("short"), 700 * kKiB);
    const std::string& message = short_of.status().message();
    const bool good = fits.ok() && !short_of.ok() && message.ends_with("needs 0.7 MiB, /dev/shm has 0.3 MiB free");
    if (good) {
      std::fill((*fits)->bytes().begin(), (*fits)->bytes().end(), std::byte{1});
      fits->reset();
    }
    _exit(good && SharedMemory::Create(OwnedName("again"), 1000 * kKiB).ok() ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFEXITED(status));
  if (WEXITSTATUS(status) == 77) {
    GTEST_SKIP() << "needs the right to mount (root, or CAP_SYS_ADMIN)";
  }
  EXPECT_EQ(WEXITSTATUS(status), 0);
}

// RC-PAY-10: torch's manager unlinks a dead client's names up to 2 s later; the next incarnation must not lose its own.
TEST(SharedMemory, GivesEveryIncarnationANameOfItsOwn) {
  Incarnation first;
  first.high = 1;
  Incarnation second;
  second.high = 2;
  auto memory = SharedMemory::Create(OwnedName("slot"), 4096);
  ASSERT_TRUE(memory.ok());
  const std::string first_name = IncarnationName("slot", first);
  const std::string second_name = IncarnationName("slot", second);
  // "/refit-4194304-9999999999-n4026531836-l123456-" and 12 digits are the longest that occurs; torch takes 59 bytes.
  EXPECT_LE(first_name.size() - OwnedName("slot").size(), 13U);
  ASSERT_TRUE((*memory)->AddName(first_name).ok());
  ASSERT_TRUE((*memory)->AddName(second_name).ok());  // 0 s after the first one's death
  shm_unlink(first_name.c_str());                     // the manager of the dead one, late
  EXPECT_TRUE(SharedMemory::Open(second_name, 4096).ok());
  EXPECT_EQ((*memory)->AddName(second_name).code(), StatusCode::kAlreadyExists);
  (*memory)->Unlink();
  EXPECT_FALSE(Exists(second_name));
  EXPECT_FALSE(Exists((*memory)->name()));
  (*memory)->bytes()[0] = std::byte{1};  // the memory lives as long as somebody maps it
}

TEST(SharedMemory, RemovesOneNameAndKeepsTheOthers) {
  auto memory = SharedMemory::Create(OwnedName("two"), 4096);
  ASSERT_TRUE(memory.ok());
  const std::string second = OwnedName("two-b");
  ASSERT_TRUE((*memory)->AddName(second).ok());
  (*memory)->RemoveName(second);
  (*memory)->RemoveName((*memory)->name());  // not one that AddName gave
  EXPECT_FALSE(Exists(second));
  EXPECT_TRUE(Exists((*memory)->name()));
}

TEST(SweepDeadOwners, RemovesOnlyWhatDeadProcessesLeft) {
  const ProcessIdentity dead = DeadProcess();
  const std::string left = StrCat("/refit-", dead.pid, "-", dead.start_time, "-left");
  const std::string held = StrCat("/refit-", dead.pid, "-", dead.start_time, "-held");
  const std::string reused_pid = StrCat("/refit-", getpid(), "-", ThisProcess().start_time - 1, "-left");
  for (const std::string& name : {left, reused_pid}) {
    const int file = shm_open(name.c_str(), O_CREAT | O_RDWR, 0600);
    ASSERT_GE(file, 0);
    close(file);
  }
  auto mine = SharedMemory::Create(OwnedName("mine"), 4096);
  // As seen from another container: the pid means nothing here, but the creator lives and holds its lock.
  auto elsewhere = SharedMemory::Create(held, 4096);
  ASSERT_TRUE(mine.ok());
  ASSERT_TRUE(elsewhere.ok());

  const std::vector<std::string> removed = SweepDeadOwners();

  EXPECT_THAT(removed, Contains(left));
  EXPECT_THAT(removed, Contains(reused_pid));
  EXPECT_FALSE(Exists(left));
  EXPECT_FALSE(Exists(reused_pid));
  EXPECT_TRUE(Exists((*mine)->name()));
  EXPECT_TRUE(Exists(held));
}

TEST(SweepDeadOwners, RemovesWhatAKilledProcessLeft) {
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  const pid_t child = fork();
  if (child == 0) {
    auto memory = SharedMemory::Create(OwnedName("killed"), 4096);
    const ProcessIdentity self = ThisProcess();
    if (memory.ok() && write(ends[1], &self, sizeof(self)) == sizeof(self)) {
      pause();
    }
    _exit(1);
  }
  ProcessIdentity identity;
  ASSERT_EQ(read(ends[0], &identity, sizeof(identity)), static_cast<ssize_t>(sizeof(identity)));
  const std::string ours = OwnedName("killed");
  const std::string name = StrCat("/refit-", identity.pid, "-", identity.start_time, ours.substr(ours.find("-n")));
  EXPECT_TRUE(Exists(name));
  EXPECT_THAT(SweepDeadOwners(), Not(Contains(name)));
  kill(child, SIGKILL);
  siginfo_t ended;
  ASSERT_EQ(waitid(P_PID, static_cast<id_t>(child), &ended, WEXITED | WNOWAIT), 0);  // a zombie still: dead for us
  EXPECT_THAT(SweepDeadOwners(), Contains(name));
  EXPECT_EQ(waitpid(child, nullptr, 0), child);
  close(ends[0]);
  close(ends[1]);
}

TEST(SharedMemory, ThatIsCutByAPeerIsAnErrorUnderTheGuard) {
  auto memory = SharedMemory::Create(OwnedName("cut"), 1 << 20);
  ASSERT_TRUE(memory.ok());
  ASSERT_EQ(truncate(("/dev/shm" + (*memory)->name()).c_str(), 0), 0);
  const Status status = GuardMapped(
      "load slot 0", [&] { std::fill((*memory)->bytes().begin(), (*memory)->bytes().end(), std::byte{1}); });
  EXPECT_EQ(status.message(), "load slot 0 vanished while mapped");
}

TEST(LoadSlot, KeepsTorchsHeader) {
  alignas(64) std::byte object[kLoadHeaderSize + 100] = {};
  LoadSlot slot(object);
  slot.Initialise();
  EXPECT_EQ(slot.data().data(), object + 64);
  EXPECT_EQ(slot.data().size(), 100U);
  EXPECT_EQ(LoadSlot::ObjectSize(100), sizeof(object));
  EXPECT_EQ(object[0], std::byte{1});  // int32, little endian
  EXPECT_EQ(object[1], std::byte{0});
  EXPECT_TRUE(slot.free());
}

// RC-PAY-09: a rank of the load before that opens late still counts.
TEST(LoadSlot, NeverForgetsAReaderThatIsStillThere) {
  alignas(64) std::byte object[kLoadHeaderSize] = {};
  LoadSlot slot(object);
  slot.Initialise();
  slot.AddReaders(2);
  EXPECT_EQ(slot.count(), 3);
  EXPECT_FALSE(slot.free());
  slot.AddReaders(-1);  // one rank closed; the other has not even opened
  slot.AddReaders(2);   // a post too early: the late rank must not be taken off the books
  EXPECT_EQ(slot.count(), 4);
}

TEST(LoadSlot, CountsAtomicallyAcrossThreads) {
  alignas(64) std::byte object[kLoadHeaderSize] = {};
  LoadSlot slot(object);
  slot.Initialise();
  const auto pairs = [&slot] {
    for (int i = 0; i < 20'000; ++i) {
      slot.AddReaders(1);
      slot.AddReaders(-1);
    }
  };
  std::thread other(pairs);
  pairs();
  other.join();
  EXPECT_TRUE(slot.free());
}

}  // namespace
}  // namespace refit::device

// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0
//
// The real NIXL. REFIT_NIXL names the folder of its wheel (tools/deps.sh --nixl DIR); without it these tests are
// skipped. Its faults are played in transport_nixl_fault_test.cc, which always runs.

#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <list>

#include "refit/transport/nixl/nixl_transport.h"
#include "tests/conformance/transport_suite.h"

namespace refit::transport {
namespace {

std::string Library() {
  const char* const folder = std::getenv("REFIT_NIXL");
  return folder == nullptr ? std::string() : std::string(folder);
}

std::string WhyNotNixl() {
  return Library().empty() ? "REFIT_NIXL names no NIXL: tools/deps.sh --nixl DIR fetches one" : std::string();
}

constexpr const char* kTcpAlone = "TLS=tcp";

NixlOptions Options(const std::string& engine_config) {
  NixlOptions options{.library = Library(), .backend_params = {}, .ucx_tls = {}};
  if (!engine_config.empty()) {
    options.backend_params["engine_config"] = engine_config;
  }
  return options;
}

std::unique_ptr<NixlTransport> Made(const std::string& engine_config) {
  auto made = NixlTransport::Create(Options(engine_config));
  EXPECT_TRUE(made.ok()) << made.status().ToString();
  return made.ok() ? *std::move(made) : nullptr;
}

// nixl-peer in a process of its own.
class PeerProcess {
 public:
  PeerProcess(ByteCount size, const std::string& engine_config) {
    std::array<int, 2> from_peer{};
    std::array<int, 2> to_peer{};
    EXPECT_EQ(pipe2(from_peer.data(), O_CLOEXEC), 0);
    EXPECT_EQ(pipe2(to_peer.data(), O_CLOEXEC), 0);
    const std::string bytes = std::to_string(size);
    pid_ = fork();
    if (pid_ == 0) {
      dup2(to_peer[0], STDIN_FILENO);
      dup2(from_peer[1], STDOUT_FILENO);
      const char* const config = engine_config.empty() ? nullptr : engine_config.c_str();
      execl(REFIT_NIXL_PEER, "nixl-peer", Library().c_str(), bytes.c_str(), config, nullptr);
      _exit(127);
    }
    close(from_peer[1]);
    close(to_peer[0]);
    in_ = fdopen(from_peer[0], "r");
    out_ = to_peer[1];
    address_ = ReadLine();
    descriptor_.text = ReadLine();
  }
  ~PeerProcess() {
    Kill();
    fclose(in_);
    close(out_);
  }
  PeerProcess(const PeerProcess&) = delete;
  PeerProcess& operator=(const PeerProcess&) = delete;

  const std::string& address() const { return address_; }
  const Descriptor& descriptor() const { return descriptor_; }
  void Signal(int signal) const { EXPECT_EQ(kill(pid_, signal), 0); }
  void Kill() {  // and wait until it has gone: until then its memory can be read
    if (pid_ != 0) {
      Signal(SIGKILL);
      EXPECT_EQ(waitpid(pid_, nullptr, 0), pid_);
      pid_ = 0;
    }
  }
  // How it ends when it is asked to; 0 after a clean exit.
  int Leave() {
    close(out_);
    out_ = -1;
    int status = -1;
    EXPECT_EQ(waitpid(pid_, &status, 0), pid_);
    pid_ = 0;
    return status;
  }

 private:
  std::string ReadLine() {
    std::string line;
    for (int c = fgetc(in_); c != EOF && c != '\n'; c = fgetc(in_)) {
      line += static_cast<char>(c);
    }
    EXPECT_FALSE(line.empty()) << "the peer ended";
    return line;
  }

  pid_t pid_ = 0;
  FILE* in_ = nullptr;
  int out_ = -1;
  std::string address_;
  Descriptor descriptor_;
};

template <bool over_tcp>
class NixlBackend {
 public:
  static constexpr bool kExportsInAddress = true;

  std::string WhyNot() { return WhyNotNixl(); }
  Transport& exporter() { return Once(exporter_); }
  Transport& reader() { return Once(reader_); }
  MutableBytes Allocate(ByteCount size) { return memory_.emplace_back(size); }
  std::string NobodyAddress() { return PeerProcess(1000, kConfig).address(); }  // killed by now

 private:
  static constexpr const char* kConfig = over_tcp ? kTcpAlone : "";
  static Transport& Once(std::unique_ptr<NixlTransport>& transport) {
    if (transport == nullptr) {
      transport = Made(kConfig);
    }
    return *transport;
  }
  std::list<std::vector<std::byte>> memory_;
  std::unique_ptr<NixlTransport> exporter_;
  std::unique_ptr<NixlTransport> reader_;
};

INSTANTIATE_TYPED_TEST_SUITE_P(NixlSharedMemory, TransportSuite, NixlBackend<false>);
INSTANTIATE_TYPED_TEST_SUITE_P(NixlTcp, TransportSuite, NixlBackend<true>);

class NixlAcrossProcesses : public ::testing::TestWithParam<const char*> {
 protected:
  static constexpr ByteCount kSize = 16 * kMiB;

  void SetUp() override {
    if (!WhyNotNixl().empty()) {
      GTEST_SKIP() << WhyNotNixl();
    }
    peer_ = std::make_unique<PeerProcess>(kSize, GetParam());
    reader_ = Made(GetParam());
    into_.assign(kSize, kUntouched);
  }
  Result<std::unique_ptr<Link>> Bind() { return reader_->Bind(peer_->address(), In(std::chrono::seconds(10))); }
  std::unique_ptr<Link> Bound() {
    auto link = Bind();
    EXPECT_TRUE(link.ok()) << link.status().ToString();
    return *std::move(link);
  }

  std::vector<std::byte> into_;
  std::unique_ptr<PeerProcess> peer_;
  std::unique_ptr<NixlTransport> reader_;
};

INSTANTIATE_TEST_SUITE_P(Ways, NixlAcrossProcesses, ::testing::Values("", kTcpAlone),
                         [](const auto& way) { return *way.param == '\0' ? "SharedMemory" : "Tcp"; });

TEST_P(NixlAcrossProcesses, FetchesWhatThePeerExportedAndBothExitCleanly) {
  const auto link = Bound();
  const auto op = link->Fetch(peer_->descriptor(), {3, kSize - 3}, MutableBytes(into_).first(kSize - 3));
  ASSERT_TRUE(op.ok()) << op.status().ToString();
  ASSERT_EQ(End(*link, *op), OpState::kDone) << link->error(*op).ToString();
  EXPECT_TRUE(HasPattern(Bytes(into_).first(kSize - 3), 3));
  EXPECT_EQ(peer_->Leave(), 0);  // not the SIGSEGV at exit that the module for EFA brings
}

// RC-BIND-04: nothing moves for a pair whose identities did not change.
TEST_P(NixlAcrossProcesses, KeepsTheConnectionOfAPeerThatDidNotChange) {
  const auto first = Bound();
  const auto second = Bound();
  EXPECT_EQ(reader_->connections(), 1U);
  const auto op = first->Fetch(peer_->descriptor(), {0, 1000}, MutableBytes(into_).first(1000));
  ASSERT_TRUE(op.ok());
  EXPECT_EQ(End(*first, *op), OpState::kDone);
}

// RX-ASM-T4: bounded, also when NIXL cannot tell.
TEST_P(NixlAcrossProcesses, FailsReadsFromAKilledPeerAndReachesItsSuccessor) {
  const auto link = Bound();
  std::vector<OpId> ops;
  constexpr ByteCount kPart = kSize / 8;
  for (ByteCount i = 0; i < 8; ++i) {
    ops.push_back(*link->Fetch(peer_->descriptor(), {i * kPart, kPart}, MutableBytes(into_).subspan(i * kPart, kPart)));
  }
  peer_->Kill();
  ASSERT_EQ(link->Fence(In(std::chrono::seconds(10))), FenceOutcome::kFenced);
  for (std::size_t i = 0; i < ops.size(); ++i) {  // within one host Fetch itself may have read everything
    const OpState state = link->Poll(ops[i]);
    EXPECT_TRUE(state == OpState::kFailed || HasPattern(Bytes(into_).subspan(i * kPart, kPart), i * kPart));
    EXPECT_EQ(link->error(ops[i]).code(), state == OpState::kFailed ? StatusCode::kUnavailable : StatusCode::kOk);
  }
  const auto late = link->Fetch(peer_->descriptor(), {0, 1}, MutableBytes(into_).first(1));
  EXPECT_TRUE(!late.ok() || End(*link, *late) == OpState::kFailed);
  EXPECT_FALSE(link->Fetch(peer_->descriptor(), {0, 1}, MutableBytes(into_).first(1)).ok());  // bind again
  EXPECT_EQ(Bind().status().code(), StatusCode::kUnavailable);  // its metadata may still load
  peer_ = std::make_unique<PeerProcess>(kSize, GetParam());
  const auto next = Bound();
  const auto op = next->Fetch(peer_->descriptor(), {0, kSize}, MutableBytes(into_));
  ASSERT_TRUE(op.ok()) << op.status().ToString();
  ASSERT_EQ(End(*next, *op), OpState::kDone) << next->error(*op).ToString();
  EXPECT_TRUE(HasPattern(into_, 0));
}

class NixlOverTcp : public NixlAcrossProcesses {};
INSTANTIATE_TEST_SUITE_P(Ways, NixlOverTcp, ::testing::Values(kTcpAlone), [](const auto&) { return "Tcp"; });

// RX-XFER-07: a stopped peer's reads stay pending, so the fence says that it does not know, by its deadline.
TEST_P(NixlOverTcp, DoesNotKnowWhetherAStoppedPeersReadsHaveEnded) {
  const auto link = Bound();
  peer_->Signal(SIGSTOP);
  const auto op = link->Fetch(peer_->descriptor(), {0, kSize}, MutableBytes(into_));
  ASSERT_TRUE(op.ok());
  const Instant start = exec::Now();
  EXPECT_EQ(link->Fence(start + std::chrono::milliseconds(500)), FenceOutcome::kUnknown);
  EXPECT_LT(exec::Now() - start, std::chrono::seconds(2));
  EXPECT_EQ(link->Poll(*op), OpState::kPending);
  // Awake again, the late answer arrives: nobody may have used that memory for something else meanwhile.
  peer_->Signal(SIGCONT);
  EXPECT_EQ(link->Fence(In(std::chrono::seconds(10))), FenceOutcome::kFenced);
  EXPECT_EQ(link->Poll(*op), OpState::kDone);
  EXPECT_TRUE(HasPattern(into_, 0));
}

TEST_P(NixlOverTcp, EndsABindToAStoppedPeerByItsDeadline) {
  peer_->Signal(SIGSTOP);
  const Instant start = exec::Now();
  const auto link = reader_->Bind(peer_->address(), start + std::chrono::milliseconds(300));
  EXPECT_EQ(link.status().code(), StatusCode::kUnavailable);
  EXPECT_LT(exec::Now() - start, std::chrono::seconds(2));
}

// Nothing of a read that hangs may be taken away, and yet everything else must end.
TEST_P(NixlOverTcp, LeavesARunningReadAloneWhenLinkAndTransportGo) {
  auto link = Bound();
  peer_->Signal(SIGSTOP);
  ASSERT_TRUE(link->Fetch(peer_->descriptor(), {0, kSize}, MutableBytes(into_)).ok());
  link.reset();
  reader_.reset();
  peer_->Signal(SIGCONT);
  reader_ = Made(GetParam());
  const auto next = Bound();
  const auto op = next->Fetch(peer_->descriptor(), {0, 1000}, MutableBytes(into_).first(1000));
  ASSERT_TRUE(op.ok());
  EXPECT_EQ(End(*next, *op), OpState::kDone);
}

}  // namespace
}  // namespace refit::transport

// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstdio>

#include "refit/device/copy.h"
#include "refit/transport/shm/shm_transport.h"
#include "tests/conformance/transport_suite.h"

namespace refit::transport {
namespace {

class ShmBackend {
 public:
  Transport& exporter() { return exporter_; }
  Transport& reader() { return reader_; }
  MutableBytes Allocate(ByteCount size) {
    auto memory = exporter_.Allocate("suite", size);
    EXPECT_TRUE(memory.ok()) << memory.status().ToString();
    return memory.ok() ? *memory : MutableBytes();
  }
  std::string NobodyAddress() { return exporter_.Address() + "0"; }  // the start time of no process

 private:
  ShmTransport exporter_;
  ShmTransport reader_;
};

INSTANTIATE_TYPED_TEST_SUITE_P(Shm, TransportSuite, ShmBackend);

// A peer in a process of its own, which exports `size` bytes with the pattern and then waits to be killed, or obeys.
class PeerProcess {
 public:
  explicit PeerProcess(ByteCount size) {
    std::array<int, 2> from_peer{};
    std::array<int, 2> to_peer{};
    EXPECT_EQ(pipe(from_peer.data()), 0);
    EXPECT_EQ(pipe(to_peer.data()), 0);
    pid_ = fork();
    if (pid_ == 0) {
      close(to_peer[1]);  // so that our end of file is the parent's death
      Serve(size, to_peer[0], from_peer[1]);
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
    device::SweepDeadOwners();
  }
  PeerProcess(const PeerProcess&) = delete;
  PeerProcess& operator=(const PeerProcess&) = delete;

  const std::string& address() const { return address_; }
  const Descriptor& descriptor() const { return descriptor_; }
  void Kill() {
    if (pid_ > 0) {
      kill(pid_, SIGKILL);
      EXPECT_EQ(waitpid(pid_, nullptr, 0), pid_);
      pid_ = 0;
    }
  }
  void Order(char what) {  // and wait until it is done
    EXPECT_EQ(write(out_, &what, 1), 1);
    EXPECT_EQ(ReadLine(), "done");
  }

 private:
  [[noreturn]] static void Serve(ByteCount size, int in, int out) {
    ShmTransport transport;
    auto memory = transport.Allocate("peer", size);
    auto descriptor = memory.ok() ? transport.Export(*memory) : Result<Descriptor>(memory.status());
    if (!descriptor.ok()) {
      _exit(1);
    }
    FillPattern(*memory);
    dprintf(out, "%s\n%s\n", transport.Address().c_str(), descriptor->text.c_str());
    char order = 0;
    while (read(in, &order, 1) == 1) {
      if (order == 'u') {
        transport.Unexport(*descriptor);
      } else if (order == 't') {  // a hostile peer cuts what it exported
        const std::string path = "/dev/shm" + ParseShmDescriptor(*descriptor)->name;
        if (truncate(path.c_str(), 0) != 0) {
          _exit(2);
        }
      }
      dprintf(out, "done\n");
    }
    _exit(0);
  }

  std::string ReadLine() {
    std::array<char, 1024> line{};
    if (fgets(line.data(), static_cast<int>(line.size()), in_) == nullptr) {
      ADD_FAILURE() << "the peer ended";
      return {};
    }
    std::string text(line.data());
    text.pop_back();
    return text;
  }

  pid_t pid_ = 0;
  FILE* in_ = nullptr;
  int out_ = -1;
  std::string address_;
  Descriptor descriptor_;
};

class ShmAcrossProcesses : public ::testing::Test {
 protected:
  static constexpr ByteCount kSize = 5'000'003;
  std::unique_ptr<Link> Bound() {
    auto link = reader_.Bind(peer_.address(), In(std::chrono::seconds(5)));
    EXPECT_TRUE(link.ok()) << link.status().ToString();
    return *std::move(link);
  }
  PeerProcess peer_{kSize};
  ShmTransport reader_;
  std::vector<std::byte> into_ = std::vector<std::byte>(kSize, kUntouched);
};

TEST_F(ShmAcrossProcesses, FetchesAndMapsWhatThePeerExported) {
  const auto link = Bound();
  const auto op = link->Fetch(peer_.descriptor(), {3, kSize - 3}, MutableBytes(into_).first(kSize - 3));
  ASSERT_TRUE(op.ok()) << op.status().ToString();
  ASSERT_EQ(End(*link, *op), OpState::kDone);
  EXPECT_TRUE(HasPattern(Bytes(into_).first(kSize - 3), 3));
  const auto mapped = link->MapInPlace(peer_.descriptor());
  ASSERT_TRUE(mapped.ok());
  EXPECT_TRUE(HasPattern(mapped->bytes, 0));
}

TEST_F(ShmAcrossProcesses, RefusesAnotherPeersMemory) {
  PeerProcess other(1000);
  const auto link = Bound();
  EXPECT_EQ(link->Fetch(other.descriptor(), {0, 10}, MutableBytes(into_).first(10)).status().code(),
            StatusCode::kNotFound);
}

TEST_F(ShmAcrossProcesses, ObeysUnexport) {
  peer_.Order('u');
  EXPECT_EQ(Bound()->Fetch(peer_.descriptor(), {0, 10}, MutableBytes(into_).first(10)).status().code(),
            StatusCode::kNotFound);
}

// kill -9 before the first fetch, and with the memory mapped: data or an error, never a crash or a hang.
TEST_F(ShmAcrossProcesses, SurvivesAKilledPeer) {
  const auto mapped_before = Bound();
  ASSERT_TRUE(mapped_before->MapInPlace(peer_.descriptor()).ok());
  const auto bound_before = Bound();
  peer_.Kill();
  device::SweepDeadOwners();
  const auto op = mapped_before->Fetch(peer_.descriptor(), {0, kSize}, MutableBytes(into_));
  ASSERT_TRUE(op.ok());
  EXPECT_EQ(End(*mapped_before, *op), OpState::kDone);  // the memory lives as long as it is mapped
  EXPECT_TRUE(HasPattern(into_, 0));
  EXPECT_EQ(bound_before->Fetch(peer_.descriptor(), {0, kSize}, MutableBytes(into_)).status().code(),
            StatusCode::kNotFound);
  EXPECT_EQ(reader_.Bind(peer_.address(), In(std::chrono::seconds(5))).status().code(), StatusCode::kUnavailable);
}

// RC-PAY-10: memory that vanishes under the reader fails the operation.
TEST_F(ShmAcrossProcesses, FailsAFetchFromMemoryThatThePeerCut) {
  const auto link = Bound();
  ASSERT_TRUE(link->MapInPlace(peer_.descriptor()).ok());
  peer_.Order('t');
  const auto op = link->Fetch(peer_.descriptor(), {0, kSize}, MutableBytes(into_));
  ASSERT_TRUE(op.ok());
  EXPECT_EQ(End(*link, *op), OpState::kFailed);
  EXPECT_EQ(link->error(*op).code(), StatusCode::kDataLoss);
  EXPECT_EQ(Bound()->Fetch(peer_.descriptor(), {0, 10}, MutableBytes(into_).first(10)).status().code(),
            StatusCode::kFailedPrecondition);
}

TEST_F(ShmAcrossProcesses, LeavesNothingBehindAfterASweep) {
  const std::string name = ParseShmDescriptor(peer_.descriptor())->name;
  peer_.Kill();
  EXPECT_THAT(device::SweepDeadOwners(), ::testing::Contains(name));
  EXPECT_EQ(device::SharedMemory::Open(name, kSize).status().code(), StatusCode::kNotFound);
}

}  // namespace
}  // namespace refit::transport

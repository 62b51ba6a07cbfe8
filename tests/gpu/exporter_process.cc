// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0

#include "tests/gpu/exporter_process.h"

#include <signal.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "refit/base/check.h"
#include "refit/base/str.h"
#include "refit/device/cuda.h"
#include "refit/exec/clock.h"
#include "refit/transport/factory.h"

namespace refit::gpu_test {
namespace {

constexpr ByteCount kSharedSize = 64 * kMiB;
constexpr Duration kCopyDeadline = std::chrono::seconds(30);

std::string NixlLibrary() {
  const char* const library = std::getenv("REFIT_NIXL");
  return library == nullptr ? std::string() : std::string(library);
}

}  // namespace

Status CopyNow(device::GpuOrdinal gpu, const std::byte* from, std::byte* to, ByteCount size) {
  REFIT_ASSIGN_OR_RETURN(const auto queue, device::GpuQueue::Make(gpu));
  const device::GpuCopy copy{from, to, size};
  REFIT_RETURN_IF_ERROR(queue->Copy({&copy, 1}));
  REFIT_ASSIGN_OR_RETURN(const device::GpuTicket ticket, queue->Mark());
  return queue->Wait(ticket, exec::Now() + kCopyDeadline);
}

Result<std::unique_ptr<transport::Transport>> MakeTransport(std::string_view name) {
  transport::TransportOptions options;
  options.nixl.library = NixlLibrary();
  return transport::MakeTransport(name, options);
}

// The other end, in the child.
class ExporterProcess::Server {
 public:
  Server(std::string_view transport, MutableBytes shared) : name_(transport), shared_(shared) {}

  Message Answer(Message message) {
    const Status status = Do(message);
    message.code = static_cast<std::int32_t>(status.code());
    if (!status.ok()) {
      Put(message, status.ToString());
    }
    return message;
  }

 private:
  static void Put(Message& message, std::string_view text) {
    text = text.substr(0, message.text.size() - 1);
    std::copy(text.begin(), text.end(), message.text.begin());
    message.text[text.size()] = '\0';
  }

  Result<device::Memory> Find(std::uint64_t number) const {
    const auto found = arenas_.find(number);
    if (found == arenas_.end()) {
      return NotFound(StrCat("no memory ", number));
    }
    return found->second->memory();
  }

  Status Do(Message& message) {
    if (transport_ == nullptr) {
      REFIT_ASSIGN_OR_RETURN(transport_, MakeTransport(name_));
    }
    auto* const host = reinterpret_cast<std::byte*>(message.address);
    switch (message.what) {
      case 'a': {
        message.number = ++last_;
        REFIT_ASSIGN_OR_RETURN(arenas_[last_], device::GpuArena::Allocate(message.gpu, message.size));
        return OkStatus();
      }
      case 'f': {
        if (name_ != "nixl") {
          arenas_.erase(message.number);
        }
        return OkStatus();
      }
      case 'u': {
        REFIT_ASSIGN_OR_RETURN(const device::Memory memory, Find(message.number));
        return CopyNow(*memory.gpu, host, memory.bytes.data(), message.size);
      }
      case 'd': {
        REFIT_ASSIGN_OR_RETURN(const device::Memory memory, Find(message.number));
        return CopyNow(*memory.gpu, memory.bytes.data(), host, message.size);
      }
      case 'e': {
        REFIT_ASSIGN_OR_RETURN(const device::Memory memory, Find(message.number));
        REFIT_ASSIGN_OR_RETURN(const transport::Descriptor descriptor,
                               transport_->Export(memory.Part(message.offset, message.size)));
        Put(message, descriptor.text);
        return OkStatus();
      }
      case 's': {
        REFIT_ASSIGN_OR_RETURN(const transport::Descriptor descriptor, transport_->Export(shared_));
        Put(message, descriptor.text);
        return OkStatus();
      }
      case 'x': transport_->Unexport({std::string(message.text.data())}); return OkStatus();
      case 'A': {
        const std::string address = transport_->Address();
        Put(message, address);
        return address.size() < message.text.size()
                   ? OkStatus()
                   : Internal(StrCat("an address of ", address.size(), " bytes"), "make Message::text longer");
      }
      default: return Internal("an order that nobody gives");
    }
  }

  const std::string name_;
  const MutableBytes shared_;
  std::unique_ptr<transport::Transport> transport_;
  std::map<std::uint64_t, std::unique_ptr<device::GpuArena>> arenas_;
  std::uint64_t last_ = 0;
};

ExporterProcess::ExporterProcess(std::string_view transport) {
  void* const shared = mmap(nullptr, kSharedSize, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  REFIT_CHECK(shared != MAP_FAILED, "64 MiB of shared memory");
  shared_ = {static_cast<std::byte*>(shared), kSharedSize};
  std::array<int, 2> ends{};
  REFIT_CHECK(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends.data()) == 0, "a socket pair");
  pid_ = fork();
  if (pid_ == 0) {
    close(ends[1]);
    Server server(transport, shared_);
    Message message;
    while (read(ends[0], &message, sizeof(message)) == static_cast<ssize_t>(sizeof(message))) {
      message = server.Answer(message);
      if (write(ends[0], &message, sizeof(message)) != static_cast<ssize_t>(sizeof(message))) {
        break;
      }
    }
    _exit(0);  // the parent has ended
  }
  close(ends[0]);
  socket_ = ends[1];
}

ExporterProcess::~ExporterProcess() {
  Kill();
  close(socket_);
  munmap(shared_.data(), shared_.size());
}

void ExporterProcess::Kill() {
  if (pid_ > 0) {
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
    pid_ = 0;
  }
}

Result<ExporterProcess::Message> ExporterProcess::Ask(Message message) {
  if (send(socket_, &message, sizeof(message), MSG_NOSIGNAL) != static_cast<ssize_t>(sizeof(message)) ||
      read(socket_, &message, sizeof(message)) != static_cast<ssize_t>(sizeof(message))) {
    return Unavailable("the exporter's process has ended");
  }
  if (message.code != 0) {
    return Status(static_cast<StatusCode>(message.code), message.text.data());
  }
  return message;
}

Result<std::uint64_t> ExporterProcess::Allocate(device::GpuOrdinal gpu, ByteCount size) {
  REFIT_ASSIGN_OR_RETURN(const Message reply, Ask({.what = 'a', .gpu = gpu, .size = size}));
  return reply.number;
}

Status ExporterProcess::Free(std::uint64_t number) { return Ask({.what = 'f', .number = number}).status(); }

Status ExporterProcess::Upload(std::uint64_t number, Bytes from_shared) {
  return Ask({.what = 'u',
              .number = number,
              .size = from_shared.size(),
              .address = reinterpret_cast<std::uint64_t>(from_shared.data())})
      .status();
}

Status ExporterProcess::Download(std::uint64_t number, MutableBytes into_shared) {
  return Ask({.what = 'd',
              .number = number,
              .size = into_shared.size(),
              .address = reinterpret_cast<std::uint64_t>(into_shared.data())})
      .status();
}

Result<transport::Descriptor> ExporterProcess::Export(std::uint64_t number, ByteCount offset, ByteCount size) {
  REFIT_ASSIGN_OR_RETURN(const Message reply, Ask({.what = 'e', .number = number, .offset = offset, .size = size}));
  return transport::Descriptor{reply.text.data()};
}

Result<transport::Descriptor> ExporterProcess::ExportShared() {
  REFIT_ASSIGN_OR_RETURN(const Message reply, Ask({.what = 's'}));
  return transport::Descriptor{reply.text.data()};
}

Status ExporterProcess::Unexport(const transport::Descriptor& descriptor) {
  Message message{.what = 'x'};
  std::copy_n(descriptor.text.begin(), std::min(descriptor.text.size(), message.text.size() - 1), message.text.begin());
  return Ask(message).status();
}

Result<std::string> ExporterProcess::Address() {
  REFIT_ASSIGN_OR_RETURN(const Message reply, Ask({.what = 'A'}));
  return std::string(reply.text.data());
}

std::string WhyNot(std::string_view transport, std::size_t gpus_needed) {
  if (transport == "nixl" && NixlLibrary().empty()) {
    return "REFIT_NIXL names no NIXL: tools/nixl/fetch.sh fetches one";
  }
  return WhyNoGpus(gpus_needed);
}

std::string WhyNoGpus(std::size_t needed) {
  const auto gpus = device::ListGpus();
  if (!gpus.has_value()) {
    return gpus.status().ToString();
  }
  return gpus->size() >= needed ? std::string() : StrCat("needs ", needed, " GPUs, there are ", gpus->size());
}

}  // namespace refit::gpu_test

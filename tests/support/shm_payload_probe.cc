// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0
//
// shm-payload-probe URL TP OBJECT DATA LIST [LABEL]: installs a load in a live server through a shared-memory object
// made by hand, and prints what the server answered, how long it took and what became of the count.
//
//   OBJECT  "/name": made when it does not exist (64-byte header, count 1, then the bytes of the file DATA)
//   LIST    one tensor a line: NAME DTYPE OFFSET DIMENSIONS..., in torch's names
//
// The object is left behind: the caller links, kills and removes. See docs/decisions/0001-shared-memory-loads.md.

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>
#include <sstream>
#include <string>

#include "refit/engine/sglang/sglang_engine.h"
#include "refit/exec/clock.h"

namespace {

using refit::engine::Engine;
using refit::engine::PayloadTensor;
using refit::sync::Answer;
using refit::sync::AnswerKind;
using refit::sync::Operation;

constexpr refit::Duration kDeadline = std::chrono::seconds(60);
constexpr std::size_t kHeader = 64;

[[noreturn]] void Fail(const std::string& why) {
  std::fprintf(stderr, "shm-payload-probe: %s\n", why.c_str());
  std::exit(1);
}

std::vector<PayloadTensor> ReadList(const char* path) {
  std::vector<PayloadTensor> tensors;
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    std::istringstream words(line);
    PayloadTensor tensor;
    std::string dtype;
    words >> tensor.spec.name >> dtype >> tensor.offset;
    const auto known = refit::weights::DTypeFromTorchName(dtype);
    if (!words || !known) {
      Fail("bad line: " + line);
    }
    tensor.spec.dtype = *known;
    for (std::int64_t dimension = 0; words >> dimension;) {
      tensor.spec.shape.push_back(dimension);
    }
    tensors.push_back(tensor);
  }
  return tensors;
}

// The count of the mapped object; fills a new object from `data`.
std::atomic_ref<std::int32_t> MapObject(const std::string& name, const std::string& data) {
  const int made = shm_open(name.c_str(), O_RDWR | O_CREAT | O_EXCL, 0600);
  const int fd = made >= 0 ? made : shm_open(name.c_str(), O_RDWR, 0);
  const std::size_t size = kHeader + data.size();
  if (fd < 0 || (made >= 0 && posix_fallocate(fd, 0, static_cast<off_t>(size)) != 0)) {
    Fail("cannot make " + name);
  }
  void* memory = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (memory == MAP_FAILED) {
    Fail("cannot map " + name);
  }
  close(fd);
  const std::atomic_ref<std::int32_t> count(*static_cast<std::int32_t*>(memory));
  if (made >= 0) {
    count.store(1);
  }
  std::memcpy(static_cast<char*>(memory) + kHeader, data.data(), data.size());
  return count;
}

void Print(const char* what, const Answer& answer) {
  constexpr const char* kKinds[] = {"ok", "refused", "not found", "no answer"};
  std::printf("%-8s %-9s %8.1f ms  %s\n", what, kKinds[static_cast<int>(answer.kind)], refit::ToMillis(answer.elapsed),
              answer.message.c_str());
}

bool Install(Engine& engine, const refit::engine::UpdateCall& call, std::atomic_ref<std::int32_t> count) {
  Print("pause", engine.Call(Operation::kPause, {}, kDeadline));
  Print("flush", engine.Call(Operation::kFlush, {}, kDeadline));
  const Answer begin = engine.Call(Operation::kBegin, {}, kDeadline);
  Print("begin", begin);

  const auto readers = static_cast<std::int32_t>(call.ranks.size());
  count.fetch_add(readers);  // before the POST (RC-PAY-09)
  std::printf("count    %d before the update\n", count.load());
  const Answer update = engine.Update(call, kDeadline);
  Print("update", update);
  const refit::Instant answered = refit::exec::Now();
  const std::int32_t at_answer = count.load();
  const bool back = refit::exec::WaitUntil([&] { return count.load() == 1; }, answered + std::chrono::seconds(5));
  std::printf("count    %d at the answer, %d after %.1f ms\n", at_answer, count.load(),
              refit::ToMillis(refit::exec::Now() - answered));

  if (begin.kind == AnswerKind::kOk) {
    Print("end", engine.Call(Operation::kEnd, {}, kDeadline));
  }
  Print("resume", engine.Call(Operation::kResume, {}, kDeadline));
  return update.kind == AnswerKind::kOk && back;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 6) {
    std::fputs("usage: shm-payload-probe URL TP OBJECT DATA LIST [LABEL]\n", stderr);
    return 2;
  }
  std::ifstream file(argv[4], std::ios::binary);
  const std::string data{std::istreambuf_iterator<char>(file), {}};
  auto engine = refit::engine::sglang::ConnectSglang({.url = argv[1], .admin_key = {}, .pause_mode = {}});
  if (!engine.has_value()) {
    Fail(engine.status().ToString());
  }
  const auto description = (*engine)->Describe(kDeadline);
  if (!description.has_value()) {
    Fail(description.status().ToString());
  }
  std::printf("server   %s, family %d, TP %u\n", description->version.c_str(), static_cast<int>(description->family),
              description->tp_size);

  const refit::engine::RankPayload payload = {
      .load = refit::engine::HostLoad{.shm_name = argv[3], .data_size = data.size()}, .tensors = ReadList(argv[5])};
  refit::engine::UpdateCall call;
  call.ranks.assign(static_cast<std::size_t>(std::atoi(argv[2])), payload);
  if (argc > 6) {
    call.label = refit::WeightVersion(static_cast<std::uint64_t>(std::atoll(argv[6])));
  }
  const bool good = Install(**engine, call, MapObject(argv[3], data));
  const auto checksums = (*engine)->Checksums(kDeadline);
  if (!checksums.has_value()) {
    Fail(checksums.status().ToString());
  }
  for (const auto& rank : *checksums) {
    for (const auto& [name, hash] : rank.hashes) {
      std::printf("hash     %u %s %s\n", rank.rank.value(), name.c_str(), hash.c_str());
    }
  }
  return good ? 0 : 3;
}

// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0

#include "refit/transport/cuda_ipc/export_table.h"

#include <algorithm>
#include <atomic>

#include "refit/base/bytes.h"
#include "refit/base/str.h"
#include "refit/device/copy.h"
#include "refit/device/hash.h"
#include "refit/exec/random.h"

namespace refit::transport {
namespace {

constexpr std::uint64_t kFree = 0;
constexpr ByteCount kSize = ExportTable::kCapacity * sizeof(std::uint64_t);

std::uint64_t KeyOf(std::string_view text) {
  const auto hasher = device::MakeDigestHasher();
  hasher->Reset();
  hasher->Update(AsBytes(text));
  return std::max<std::uint64_t>(hasher->Finish().low, kFree + 1);
}

}  // namespace

Result<std::unique_ptr<ExportTable>> ExportTable::Create() {
  std::string name = device::OwnedName(StrCat("cuda-", ToHex(exec::RandomId()).substr(0, 8)));
  REFIT_ASSIGN_OR_RETURN(auto memory, device::SharedMemory::Create(std::move(name), kSize));  // zeroed
  return std::unique_ptr<ExportTable>(new ExportTable(std::move(memory)));
}

Result<std::unique_ptr<ExportTable>> ExportTable::Open(std::string_view name) {
  auto memory = device::SharedMemory::Open(name, kSize);
  if (!memory.has_value()) {
    return Unavailable(StrCat("no process of this host exports GPU memory as ", name),
                       "the peer has ended, or is on another host or in a container with a /dev/shm of its own");
  }
  return std::unique_ptr<ExportTable>(new ExportTable(*std::move(memory)));
}

std::uint64_t* ExportTable::Find(std::uint64_t key) const {
  auto* const places = reinterpret_cast<std::uint64_t*>(memory_->bytes().data());
  auto* const found = std::find_if(places, places + kCapacity, [key](std::uint64_t& place) {
    return std::atomic_ref(place).load(std::memory_order_acquire) == key;
  });
  return found == places + kCapacity ? nullptr : found;
}

Status ExportTable::Add(std::string_view text) {
  std::uint64_t* const place = Find(kFree);
  if (place == nullptr) {
    return ResourceExhausted(StrCat("this process exports ", kCapacity, " stretches of GPU memory already"),
                             "export fewer and larger ones");
  }
  std::atomic_ref(*place).store(KeyOf(text), std::memory_order_release);
  return OkStatus();
}

void ExportTable::Remove(std::string_view text) {
  if (std::uint64_t* const place = Find(KeyOf(text))) {
    std::atomic_ref(*place).store(kFree, std::memory_order_release);
  }
}

bool ExportTable::Has(std::string_view text) const {
  const std::uint64_t key = KeyOf(text);
  bool has = false;  // a peer may cut its table
  const Status touched = device::GuardMapped(name(), [&] { has = Find(key) != nullptr; });
  return touched.ok() && has;
}

}  // namespace refit::transport

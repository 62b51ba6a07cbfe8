// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0

#include "refit/runtime/receiver_memory.h"

#include <gtest/gtest.h>

#include <atomic>
#include <string>
#include <variant>

#include "refit/exec/clock.h"
#include "refit/exec/random.h"
#include "refit/transport/cuda_ipc/cuda_ipc_descriptor.h"

namespace refit::runtime {
namespace {

constexpr ByteCount kCapacity = 4096;

std::string NameOf(SharedLoad& load) { return std::get<engine::HostLoad>(load.Describe(0, 1)).shm_name; }

// What a rank does when it lets go of a load in GPU memory.
void LetGo(const device::RefCounters& counters, const engine::CudaLoad& load) {
  auto file = *device::SharedMemory::Open(counters.name(), 64 + 8 * device::RefCounters::kCapacity);
  auto* const counter = reinterpret_cast<std::int64_t*>(file->bytes().data() + 64) + load.counter_index;
  std::atomic_ref(*counter).fetch_sub(1);
}

TEST(LoadMemory, LoadsAlternateBetweenTwoPlacesThatAreUsedAgain) {
  LoadMemory memory(Incarnation{exec::RandomId()}, 0, std::nullopt, nullptr);
  SharedLoad* const first = *memory.Place(0, kCapacity);
  SharedLoad* const second = *memory.Place(1, kCapacity);
  EXPECT_NE(NameOf(*first), NameOf(*second));
  EXPECT_EQ(*memory.Place(2, kCapacity), first);
  EXPECT_EQ(*memory.Place(3, kCapacity / 2), second);
  EXPECT_GE((*memory.Place(4, 2 * kCapacity))->capacity(), 2 * kCapacity);
}

// RX-XFER-12: after a refusal the count never comes back, so the place is another one from then on.
TEST(LoadMemory, APlaceThatARankMayStillReadIsNotUsedAgain) {
  LoadMemory memory(Incarnation{exec::RandomId()}, 0, std::nullopt, nullptr);
  SharedLoad* const first = *memory.Place(0, kCapacity);
  const std::string name = NameOf(*first);
  const device::Memory bytes = first->data();
  first->AddReaders(1);
  EXPECT_FALSE(first->free());
  EXPECT_NE(NameOf(**memory.Place(2, kCapacity)), name);
  bytes.bytes[0] = std::byte{1};  // still mapped: a late reader finds memory
}

// RX-XFER-07: memory in which a read may still land is kept and never used again, once in a life.
TEST(LoadMemory, BuriedPlacesAreKeptAndNeverUsedAgain) {
  LoadMemory memory(Incarnation{exec::RandomId()}, 0, std::nullopt, nullptr);
  SharedLoad* const first = *memory.Place(0, kCapacity);
  const std::string name = NameOf(*first);
  const device::Memory landing = first->data();
  memory.EndTransfer(stream::LateReads::kPossible);
  EXPECT_NE(NameOf(**memory.Place(0, kCapacity)), name);
  landing.bytes[0] = std::byte{1};  // the late write
  EXPECT_FALSE(memory.exhausted());
  memory.EndTransfer(stream::LateReads::kPossible);
  EXPECT_TRUE(memory.exhausted());
}

// RC-PAY-05, RC-PAY-06: each rank has a counter of its own, and the load is free when every one has let go.
TEST(GpuSharedLoad, IsFreeWhenEveryRankHasLetGo) {
  const auto counters = *device::RefCounters::Create(device::IncarnationName("rc", Incarnation{exec::RandomId()}));
  GpuSharedLoad load({.gpu_uuid = "00112233-4455-6677-8899-aabbccddeeff",
                      .handle = std::string(64, 'h'),
                      .allocation_size = 1 << 20,
                      .offset = 4096},
                     8192, {}, *counters);
  const auto first = std::get<engine::CudaLoad>(load.Describe(0, 100));
  const auto second = std::get<engine::CudaLoad>(load.Describe(1, 100));
  EXPECT_EQ(first.ipc_handle, std::string("\x01"
                                          "c") +
                                  std::string(64, 'h'));
  EXPECT_EQ(first.storage_offset, 4096U);
  EXPECT_EQ(first.storage_size, 8192U);
  EXPECT_EQ(first.load_size, 100U);
  EXPECT_EQ(first.counter_name, counters->name());
  EXPECT_NE(first.counter_index, second.counter_index);
  EXPECT_TRUE(load.free());
  for (int update = 0; update < 3; ++update) {
    load.AddReaders(2);
    EXPECT_FALSE(load.free());
    LetGo(*counters, second);
    EXPECT_FALSE(load.free());
    EXPECT_EQ(load.HeldText(), "1 of 2 counters armed");
    LetGo(*counters, first);
    EXPECT_TRUE(load.free());
  }
}

TEST(SenderMemory, AnEngineOnNoGpuRefusesALoadInGpuMemory) {
  TransportSet transports{{}};
  const auto memory = *ReceiverMemory::Make(transports, Incarnation{exec::RandomId()}, {});
  const std::string descriptor = transport::MakeCudaIpcDescriptor({{.gpu_uuid = "00112233-4455-6677-8899-aabbccddeeff",
                                                                    .handle = std::string(64, 'h'),
                                                                    .allocation_size = 4096,
                                                                    .offset = 0},
                                                                   4096})
                                     .text;
  const auto mapped = memory->in_place().Map("cuda_ipc", "", descriptor, exec::Now());
  EXPECT_EQ(mapped.status().code(), StatusCode::kFailedPrecondition);
  EXPECT_NE(mapped.status().message().find("runs on no GPU"), std::string::npos);
}

}  // namespace
}  // namespace refit::runtime

// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0

#include "refit/runtime/slot_memory.h"

#include <algorithm>
#include <utility>

#include "refit/base/str.h"
#include "refit/device/cuda.h"
#include "refit/device/host_block.h"
#include "refit/device/shared_memory.h"

namespace refit::runtime {
namespace {

class ShmSlots final : public SlotMemory {
 public:
  ShmSlots(SlotIndex slot, transport::ShmTransport& transport) : slot_(slot), transport_(transport) {}
  ~ShmSlots() override {
    for (Object& object : objects_) {
      Drop(object);
    }
  }

  Status Prepare(std::span<const ByteCount> capacities, const stream::SlotReview& review) override {
    for (std::size_t i = capacities.size(); i < objects_.size(); ++i) {
      Drop(objects_[i]);
    }
    objects_.resize(capacities.size());
    for (std::size_t i = 0; i < capacities.size(); ++i) {
      const bool kept = i < review.fates.size() && review.fates[i] == stream::MemoryFate::kKeep;
      if (!kept || objects_[i].memory.empty() || objects_[i].capacity < capacities[i]) {
        REFIT_RETURN_IF_ERROR(Renew(objects_[i], capacities[i]));
      }
    }
    return OkStatus();
  }
  std::vector<stream::Readers> readers() const override {
    std::vector<stream::Readers> readers;
    readers.reserve(objects_.size());
    for (const Object& object : objects_) {
      const bool gone = object.memory.empty() || device::LoadSlot(object.memory).free();
      readers.push_back(gone ? stream::Readers::kGone : stream::Readers::kThere);
    }
    return readers;
  }
  device::Memory data(std::size_t index) const override { return device::LoadSlot(objects_[index].memory).data(); }
  std::vector<std::string> descriptors() const override {
    std::vector<std::string> descriptors;
    descriptors.reserve(objects_.size());
    for (const Object& object : objects_) {
      descriptors.push_back(object.descriptor.text);
    }
    return descriptors;
  }

 private:
  struct Object {
    ByteCount capacity = 0;
    MutableBytes memory;  // the transport's
    transport::Descriptor descriptor;
  };

  Status Renew(Object& object, ByteCount capacity) {
    Drop(object);  // gives its pages back before the new object asks for some
    REFIT_ASSIGN_OR_RETURN(object.memory,
                           transport_.Allocate(StrCat("load-", slot_), device::LoadSlot::ObjectSize(capacity)));
    object.capacity = capacity;
    device::LoadSlot(object.memory).Initialise();
    REFIT_ASSIGN_OR_RETURN(object.descriptor, transport_.Export(object.memory));
    return OkStatus();
  }
  void Drop(Object& object) {
    if (!object.memory.empty()) {
      transport_.Release(object.memory);
      object = {};
    }
  }

  const SlotIndex slot_;
  transport::ShmTransport& transport_;
  std::vector<Object> objects_;
};

// One allocation for all slots: a peer opens it once.
class Block {
 public:
  static Result<std::unique_ptr<Block>> Make(transport::Transport& transport, std::optional<device::GpuOrdinal> gpu,
                                             std::span<const ByteCount> capacities) {
    std::unique_ptr<Block> block(new Block(transport));
    ByteCount total = 0;
    for (const ByteCount capacity : capacities) {
      total += RoundUp(capacity, kAlignment);
    }
    device::Memory memory;
    if (gpu.has_value()) {
      REFIT_ASSIGN_OR_RETURN(block->arena_, device::GpuArena::Allocate(*gpu, total));
      memory = block->arena_->memory();
    } else {
      REFIT_ASSIGN_OR_RETURN(block->host_, device::HostBlock::Allocate(total));
      memory = block->host_->bytes();
    }
    ByteCount offset = 0;
    for (const ByteCount capacity : capacities) {
      block->slots_.push_back(memory.Part(offset, capacity));
      offset += RoundUp(capacity, kAlignment);
      REFIT_ASSIGN_OR_RETURN(transport::Descriptor descriptor, transport.Export(block->slots_.back()));
      block->descriptors_.push_back(std::move(descriptor.text));
    }
    return block;
  }
  ~Block() {
    for (const std::string& descriptor : descriptors_) {
      transport_.Unexport({descriptor});
    }
  }
  Block(const Block&) = delete;
  Block& operator=(const Block&) = delete;

  bool Holds(std::span<const ByteCount> capacities) const {
    bool holds = slots_.size() == capacities.size();
    for (std::size_t i = 0; holds && i < capacities.size(); ++i) {
      holds = slots_[i].size() >= capacities[i];
    }
    return holds;
  }
  const std::vector<device::Memory>& slots() const { return slots_; }
  const std::vector<std::string>& descriptors() const { return descriptors_; }

 private:
  static constexpr ByteCount kAlignment = 2 * kMiB;  // a large page

  explicit Block(transport::Transport& transport) : transport_(transport) {}

  transport::Transport& transport_;
  std::unique_ptr<device::GpuArena> arena_;  // or
  std::unique_ptr<device::HostBlock> host_;
  std::vector<device::Memory> slots_;
  std::vector<std::string> descriptors_;
};

class BlockSlots final : public SlotMemory {
 public:
  BlockSlots(transport::Transport& transport, std::optional<device::GpuOrdinal> gpu)
      : transport_(transport), gpu_(gpu) {}

  Status Prepare(std::span<const ByteCount> capacities, const stream::SlotReview& review) override {
    if (review.new_life) {
      graveyard_.clear();
    }
    if (std::count(review.fates.begin(), review.fates.end(), stream::MemoryFate::kReplace) > 0) {
      graveyard_.push_back(std::move(block_));
    }
    if (block_ == nullptr || !block_->Holds(capacities)) {
      // The peer closes its mapping at the next bind; CUDA forbids freeing before (transport.md §7).
      if (block_ != nullptr && gpu_.has_value()) {
        graveyard_.push_back(std::move(block_));
      }
      block_.reset();  // gives its memory back before the new one asks for some
      REFIT_ASSIGN_OR_RETURN(block_, Block::Make(transport_, gpu_, capacities));
    }
    return OkStatus();
  }
  device::Memory data(std::size_t index) const override { return block_->slots()[index]; }
  std::vector<std::string> descriptors() const override { return block_->descriptors(); }
  std::vector<stream::Readers> readers() const override {
    return std::vector<stream::Readers>(block_ == nullptr ? 0 : block_->slots().size(), stream::Readers::kUnknown);
  }

 private:
  transport::Transport& transport_;
  const std::optional<device::GpuOrdinal> gpu_;
  std::unique_ptr<Block> block_;
  std::vector<std::unique_ptr<Block>> graveyard_;  // of this receiver: its ranks may still read there
};

}  // namespace

std::unique_ptr<SlotMemory> MakeShmSlots(SlotIndex slot, transport::ShmTransport& transport) {
  return std::make_unique<ShmSlots>(slot, transport);
}

std::unique_ptr<SlotMemory> MakeBlockSlots(transport::Transport& transport, std::optional<device::GpuOrdinal> gpu) {
  return std::make_unique<BlockSlots>(transport, gpu);
}

}  // namespace refit::runtime

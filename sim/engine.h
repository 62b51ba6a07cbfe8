// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0
//
// One life of an engine's server: what a stock one does and where it cuts. It runs one call at a time, installs in
// place, half a tensor after the other, dies of a wrong call if its family does, and answers requests with whatever its
// parameters hold at that instant. A caller that gave up is not noticed: the call runs all the same.

#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "refit/base/ids.h"
#include "refit/sync/engine_call.h"
#include "refit/weights/tensor_spec.h"
#include "sim/node.h"
#include "sim/weights.h"

namespace refit::sim {

// Shared memory that an engine's ranks map. Whoever holds a pointer still sees it after it was unlinked.
struct LoadMemory {
  std::vector<std::byte> bytes;
  int readers = 0;  // torch's count: added before the POST, taken off by each rank that lets go
  bool unlinked = false;
};

struct PayloadTensor {
  std::size_t index = 0;  // in the manifest
  ByteCount offset = 0;   // in the memory
};
struct RankPayload {
  std::shared_ptr<LoadMemory> memory;
  std::vector<PayloadTensor> tensors;
};

// What one token was computed from.
struct Token {
  Content content = 0;  // of the first parameter
  bool mixed = false;
};
struct Generated {
  std::vector<Token> tokens;
  bool succeeded = false;
};

class Engine final : public Node {
 public:
  using OnAnswer = std::function<void(const sync::Answer&)>;

  Engine(World& world, SlotIndex slot, Incarnation incarnation);

  // Answered once: by the engine, or by the caller's deadline.
  void Call(sync::Operation operation, WeightVersion label, Duration deadline, OnAnswer done);
  void Update(std::vector<RankPayload> ranks, std::optional<WeightVersion> label, Duration deadline, OnAnswer done);
  void Probe(Duration timeout, std::function<void(bool)> done);
  void Generate(std::size_t tokens, std::function<void(const Generated&)> done);

  SlotIndex slot() const { return slot_; }
  Incarnation incarnation() const { return incarnation_; }
  bool generates() const { return alive() && !paused_; }
  // Of all parameters of all ranks; nothing where they differ.
  std::optional<Content> content() const;
  // What it held when this life began: what its version 0 is.
  std::optional<Content> first() const { return first_; }
  bool busy() const { return busy_; }
  void Load(Content content);
  void BeginLife(Incarnation incarnation);  // somebody attaches to it

 private:
  struct Posted {
    sync::Operation operation;
    WeightVersion label;
    std::vector<RankPayload> ranks;
    std::shared_ptr<OnAnswer> done;  // empty once answered or given up
  };
  struct Running {  // a request
    std::size_t wanted = 0;
    std::vector<Token> tokens;
    std::function<void(const Generated&)> done;
  };

  void OnKilled() override;
  void Post(Posted posted, Duration deadline);
  void RunNext();
  void RunCall(const Posted& posted, std::optional<FaultKind> fault);
  void RunUpdate(Posted posted, std::optional<FaultKind> fault);
  void InstallHalf(const RankPayload& payload, std::size_t rank, std::size_t half);
  sync::Answer Do(const Posted& posted);
  sync::Answer DoSession(sync::Operation operation);
  sync::Answer WrongSessionCall(const char* message);
  void Answer(const Posted& posted, const sync::Answer& answer, std::optional<FaultKind> fault);
  void Pause();
  void StepRequest(const std::shared_ptr<Running>& request);
  void EndRequest(const std::shared_ptr<Running>& request, bool succeeded);

  const SlotIndex slot_;
  Incarnation incarnation_;
  const sync::SessionFamily family_;
  std::vector<std::vector<Content>> halves_;  // [rank][2 * tensor + half]
  std::optional<Content> first_ = 0;
  bool paused_ = false;
  bool session_open_ = false;
  bool weights_released_ = false;
  bool kv_cache_released_ = false;
  int draining_ = 0;  // flushes that are still refused
  bool busy_ = false;
  std::deque<Posted> posted_;
  std::vector<std::shared_ptr<Running>> requests_;
};

}  // namespace refit::sim

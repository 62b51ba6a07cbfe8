// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0
//
// One TP rank's parameters, stored and loaded as an unmodified SGLang does on the CPU: its names, fused and sharded,
// and its silent acceptances (docs/spec/sglang-wire.md §1.4). No HTTP, no JSON, no threads: the simulator uses it too.

#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "refit/base/bytes.h"
#include "refit/base/status.h"
#include "refit/weights/model_config.h"
#include "refit/weights/shard_layout.h"
#include "refit/weights/tensor_spec.h"

namespace refit::checkpoint {
class Checkpoint;
}

namespace refit::engine::reference {

// What became of one tensor of an update. The real server answers 200 to the first two; the third ends it.
enum class LoadOutcome : std::uint8_t { kInstalled, kIgnored, kFatal };
struct LoadResult {
  LoadOutcome outcome = LoadOutcome::kInstalled;
  // kFatal: the Python exception, "KeyError: 'model.layers.0.…'"; kIgnored: the server's warning.
  std::string message;
};

// Thread: one at a time while anything mutates; concurrent readers are fine otherwise.
class RankModel {
 public:
  // All zeros. Fails on a TP size that does not divide (CheckTpSize) and on any dtype but bfloat16.
  static Result<RankModel> Make(const weights::ModelConfig& config, weights::TpShard shard);
  RankModel(RankModel&&) noexcept = default;
  RankModel& operator=(RankModel&&) noexcept = default;

  const weights::ModelConfig& config() const { return config_; }
  weights::TpShard shard() const { return layout_.shard; }
  const std::vector<weights::EngineParameter>& parameters() const { return layout_.parameters; }

  // Installs a full tensor under its Hugging Face name: slices and converts what this rank needs. Mapped bytes that
  // vanish meanwhile are kFatal, not a crash. `bytes` must be SizeOf(spec) long, else kFatal.
  LoadResult Load(const weights::TensorSpec& spec, Bytes bytes);
  // Everything the model needs. An error where a tensor is missing, unknown, or of a shape that would be fatal.
  Status LoadFromCheckpoint(const checkpoint::Checkpoint& checkpoint);
  // Dummy weights: a function of (seed, Hugging Face name, element) only, so every TP size makes the same model.
  void FillRandom(std::uint64_t seed);

  // /weights_checker. Parameter name -> first 8 bytes of SHA-256 of its raw bytes, 16 hexadecimal digits.
  std::map<std::string, std::string> Checksums() const;
  void Snapshot();
  bool has_snapshot() const { return !snapshot_.empty(); }
  void DropSnapshot();                    // >= 0.5.21 does so after a successful compare
  void ResetTensors(std::uint64_t seed);  // random values everywhere; others than FillRandom of the same seed
  // Bit-exact. FAILED_PRECONDITION without a snapshot; DATA_LOSS names the first parameter that differs and how many.
  Status Compare() const;

  // /release_memory_occupation and its resume: the contents are lost, what comes back is zeros.
  void Release();
  void Resume();
  bool released() const { return released_; }

  // /get_weights_by_name: the first rows of a Hugging Face tensor, joined from all ranks, as float32. lm_head of a tied
  // model is the embedding. NOT_FOUND for an unknown name.
  struct HfRows {
    weights::Shape shape;                  // of the full tensor
    std::vector<std::vector<float>> rows;  // a vector's rows have one number each
  };
  static Result<HfRows> RowsByHfName(std::span<const RankModel* const> ranks, std::string_view name,
                                     std::size_t row_limit);

  // Parameters by SGLang's name. Find: nothing for an unknown one. The pointer holds until Release or Resume.
  std::optional<std::size_t> Find(std::string_view parameter) const;
  const std::uint16_t* values(std::size_t index) const { return storage_.data() + offsets_[index]; }
  Bytes bytes(std::size_t index) const;
  ByteCount total_bytes() const;  // of the parameters, padding between them excluded

 private:
  // Where a Hugging Face tensor goes on this rank, and which of its dimensions the loader cuts or pads.
  enum class Leniency : std::uint8_t { kNone, kRows, kColumns };
  struct Target {
    weights::Shape full_shape;
    Leniency leniency = Leniency::kNone;
    std::size_t parameter = 0;
    std::vector<weights::SourceSlice> slices;
  };

  struct NameHash {
    using is_transparent = void;
    std::size_t operator()(std::string_view name) const { return std::hash<std::string_view>()(name); }
  };

  RankModel() = default;
  void AddTargets(std::size_t parameter, const std::map<std::string, weights::Shape>& sources);
  LoadResult LoadUnknown(std::string_view name) const;
  LoadResult Install(const Target& target, const weights::TensorSpec& spec, Bytes bytes);

  weights::ModelConfig config_;
  weights::EngineLayout layout_;
  std::unordered_map<std::string, Target, NameHash, std::equal_to<>> targets_;  // Hugging Face name -> where it goes
  std::map<std::string, std::size_t, std::less<>> index_;
  std::vector<std::size_t> offsets_;    // of parameters, in elements, each on a 64-byte boundary
  std::size_t element_count_ = 0;       // padding included
  std::vector<std::uint16_t> storage_;  // bfloat16 bits
  std::vector<std::uint16_t> snapshot_;
  bool released_ = false;
};

}  // namespace refit::engine::reference

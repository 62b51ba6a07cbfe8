// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0

#include "refit/checkpoint/random_checkpoint.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <filesystem>
#include <map>
#include <memory>
#include <system_error>
#include <vector>

#include <fmt/format.h>

#include "refit/checkpoint/checkpoint.h"
#include "refit/checkpoint/file.h"
#include "refit/checkpoint/json.h"
#include "refit/checkpoint/model_config_json.h"
#include "refit/checkpoint/safetensors_writer.h"

namespace refit::checkpoint {
namespace {

using weights::Architecture;
using weights::ModelConfig;

constexpr ByteCount kConfigMax = kMiB;
constexpr std::size_t kSampleCount = 65536;              // a 16-bit random number picks one
constexpr std::size_t kChunk = std::size_t{512} * 1024;  // elements generated per write

using Samples = std::vector<std::uint16_t>;  // BF16 bit patterns

// SplitMix64: the same numbers on every machine.
class RandomNumbers {
 public:
  explicit RandomNumbers(std::uint64_t seed) : state_(seed) {}
  std::uint64_t Next() {
    state_ += 0x9e3779b97f4a7c15;
    std::uint64_t z = state_;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
    z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
    return z ^ (z >> 31);
  }

 private:
  std::uint64_t state_;
};

std::uint16_t ToBfloat16(double value) {  // to nearest, ties to even
  const auto bits = std::bit_cast<std::uint32_t>(static_cast<float>(value));
  return static_cast<std::uint16_t>((bits + 0x7fff + ((bits >> 16) & 1)) >> 16);
}

struct SampleTables {
  Samples weights;
  Samples norms;
};

// Normal-like values: twelve uniform 16-bit numbers added. Integers until one last division, so that no compiler and no
// mathematical library can round differently.
SampleTables MakeSamples() {
  constexpr std::int64_t kOne = 65536;  // the sum's standard deviation
  SampleTables tables;
  RandomNumbers random(0);
  for (std::size_t i = 0; i < kSampleCount; ++i) {
    std::int64_t sum = -6 * (kOne - 1);
    for (int word = 0; word < 3; ++word) {
      const std::uint64_t number = random.Next();
      for (int shift = 0; shift < 64; shift += 16) {
        sum += static_cast<std::int64_t>((number >> shift) & 0xffff);
      }
    }
    tables.weights.push_back(ToBfloat16(static_cast<double>(sum) / (50 * kOne)));            // 0.02 · normal
    tables.norms.push_back(ToBfloat16(static_cast<double>(10 * kOne + sum) / (10 * kOne)));  // 1 + 0.1 · normal
  }
  return tables;
}

// Of one tensor: depends on the seed and its name only, so no two tensors hold the same.
std::uint64_t TensorSeed(std::uint64_t seed, std::string_view name) {
  std::uint64_t hash = 0xcbf29ce484222325;  // FNV-1a
  for (const char c : name) {
    hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3;
  }
  return RandomNumbers(RandomNumbers(seed).Next() ^ hash).Next();
}

Status AppendRandom(SafetensorsWriter& writer, const Samples& samples, std::uint64_t seed, ByteCount element_count) {
  std::vector<std::uint16_t> chunk(std::min<ByteCount>(element_count, kChunk));
  RandomNumbers random(seed);
  while (element_count > 0) {
    const std::size_t count = std::min<ByteCount>(element_count, chunk.size());
    for (std::size_t i = 0; i < count; i += 4) {
      const std::uint64_t number = random.Next();
      for (std::size_t lane = 0; lane < 4 && i + lane < count; ++lane) {
        chunk[i + lane] = samples[(number >> (16 * lane)) & 0xffff];
      }
    }
    REFIT_RETURN_IF_ERROR(writer.Append(std::as_bytes(std::span(chunk).first(count))));
    element_count -= count;
  }
  return OkStatus();
}

Status WriteRandomWeights(const weights::Manifest& manifest, std::uint64_t seed, const std::string& path) {
  const std::vector<weights::TensorSpec> specs(manifest.tensors().begin(), manifest.tensors().end());
  REFIT_ASSIGN_OR_RETURN(const auto writer, SafetensorsWriter::Create(path, specs));
  const SampleTables tables = MakeSamples();
  for (std::size_t i = 0; i < specs.size(); ++i) {
    const Samples& samples = specs[i].shape.size() == 1 ? tables.norms : tables.weights;
    REFIT_RETURN_IF_ERROR(AppendRandom(*writer, samples, TensorSeed(seed, specs[i].name), manifest.size(i) / 2));
  }
  return writer->Finish();
}

enum class Held { kNothing, kThis, kOtherRandom, kForeign };

// A folder of ours is whole, because it appeared by a rename: its config.json tells everything.
Held WhatIsIn(const std::string& folder, const std::string& config_text) {
  std::error_code error;
  if (!std::filesystem::exists(folder, error) || std::filesystem::is_empty(folder, error)) {
    return Held::kNothing;
  }
  const auto text = ReadFile(folder + "/config.json", kConfigMax);
  if (!text.ok()) {
    return Held::kForeign;
  }
  if (*text == config_text && std::filesystem::exists(folder + "/model.safetensors", error)) {
    return Held::kThis;
  }
  const auto tree = ParseJson(*text);
  return tree.ok() && tree->Find("refit_random") != nullptr ? Held::kOtherRandom : Held::kForeign;
}

}  // namespace

Result<ModelConfig> RandomShape(std::string_view name) {
  ModelConfig tiny;
  tiny.architecture = Architecture::kQwen3;
  tiny.layer_count = 3;
  tiny.hidden_size = 128;
  tiny.head_count = 4;
  tiny.kv_head_count = 2;
  tiny.head_size = 32;
  tiny.intermediate_size = 256;
  tiny.vocab_size = 1024;
  tiny.rope_theta = 1e6;
  tiny.bos_token = 1;
  tiny.eos_token = 2;
  if (name == "tiny") {
    return tiny;
  }
  if (name == "tiny-llama") {  // 6 heads and 3 KV heads: TP 3, as the demo's model
    ModelConfig config = tiny;
    config.architecture = Architecture::kLlama;
    config.hidden_size = 96;
    config.head_count = 6;
    config.kv_head_count = 3;
    config.head_size = 16;
    config.intermediate_size = 192;
    config.vocab_size = 384;
    config.rope_theta = 1e5;
    return config;
  }
  if (name == "tiny-moe") {
    ModelConfig config = tiny;
    config.architecture = Architecture::kQwen3Moe;
    config.layer_count = 2;
    config.expert_count = 4;
    config.expert_intermediate_size = 64;
    config.experts_per_token = 2;
    return config;
  }
  if (name == "qwen3-0.6b" || name == "qwen3-0.6b-untied") {
    ModelConfig config = tiny;
    config.layer_count = 28;
    config.hidden_size = 1024;
    config.head_count = 16;
    config.kv_head_count = 8;
    config.head_size = 128;
    config.intermediate_size = 3072;
    config.vocab_size = 151936;
    config.tie_word_embeddings = name == "qwen3-0.6b";
    config.max_position_count = 40960;
    return config;
  }
  if (name == "moe-18k") {
    ModelConfig config = tiny;
    config.architecture = Architecture::kQwen3Moe;
    config.layer_count = 48;
    config.hidden_size = 256;
    config.head_count = 4;
    config.kv_head_count = 2;
    config.head_size = 64;
    config.intermediate_size = 512;
    config.vocab_size = 4096;
    config.expert_count = 128;
    config.expert_intermediate_size = 128;
    config.experts_per_token = 8;
    return config;
  }
  return InvalidArgument(fmt::format("there is no random model {}", name),
                         "use tiny, tiny-llama, tiny-moe, qwen3-0.6b, qwen3-0.6b-untied or moe-18k");
}

Status WriteRandomCheckpoint(const ModelConfig& config, std::uint64_t seed, const std::string& folder) {
  REFIT_ASSIGN_OR_RETURN(const weights::Manifest manifest, weights::ExpectedTensors(config));
  const std::string config_text = FormatModelConfig(config, seed);
  const Held held = WhatIsIn(folder, config_text);
  if (held == Held::kThis) {
    return OkStatus();
  }
  if (held == Held::kForeign) {
    return {StatusCode::kAlreadyExists, fmt::format("{} holds something that is no random checkpoint", folder),
            "name a new or empty folder"};
  }
  REFIT_ASSIGN_OR_RETURN(const auto draft, FolderDraft::Create(folder));
  REFIT_RETURN_IF_ERROR(WriteFile(draft->draft_path() + "/config.json", config_text));
  REFIT_RETURN_IF_ERROR(WriteRandomWeights(manifest, seed, draft->draft_path() + "/model.safetensors"));
  const Status published =
      draft->Publish(held == Held::kOtherRandom ? FolderDraft::Taken::kReplace : FolderDraft::Taken::kRefuse);
  // Another process may have written the same meanwhile.
  return published.ok() || WhatIsIn(folder, config_text) == Held::kThis ? OkStatus() : published;
}

Status WriteAlteredCheckpoint(const std::string& source_folder, const std::string& folder) {
  constexpr std::string_view kEmbedding = "model.embed_tokens.weight";
  REFIT_ASSIGN_OR_RETURN(const auto source, Checkpoint::Open(source_folder));
  const auto embedding = source->manifest().Find(kEmbedding);
  const std::vector<weights::TensorSpec> specs(source->manifest().tensors().begin(),
                                               source->manifest().tensors().end());
  if (!embedding || specs[*embedding].shape.size() != 2 || source->bytes(*embedding).empty()) {
    return InvalidArgument(fmt::format("checkpoint {} has no matrix {} to alter", source_folder, kEmbedding),
                           "give a checkpoint of a language model");
  }
  const auto row_count = static_cast<std::size_t>(specs[*embedding].shape[0]);
  REFIT_ASSIGN_OR_RETURN(const auto draft, FolderDraft::Create(folder));
  REFIT_ASSIGN_OR_RETURN(const auto writer,
                         SafetensorsWriter::Create(draft->draft_path() + "/model.safetensors", specs));
  for (std::size_t i = 0; i < specs.size(); ++i) {
    const Bytes bytes = source->bytes(i);
    const std::size_t rolled = i == *embedding ? bytes.size() - bytes.size() / row_count : 0;
    REFIT_RETURN_IF_ERROR(writer->Append(bytes.subspan(rolled)));
    REFIT_RETURN_IF_ERROR(writer->Append(bytes.first(rolled)));
  }
  REFIT_RETURN_IF_ERROR(writer->Finish());
  for (const char* name : {"config.json", "generation_config.json", "tokenizer.json", "tokenizer_config.json"}) {
    std::error_code error;
    if (!std::filesystem::exists(source_folder + "/" + name, error)) {
      continue;
    }
    REFIT_ASSIGN_OR_RETURN(const std::string text, ReadFile(source_folder + "/" + name, 100 * kMiB));
    REFIT_RETURN_IF_ERROR(WriteFile(draft->draft_path() + "/" + name, text));
  }
  return draft->Publish(FolderDraft::Taken::kRefuse);
}

}  // namespace refit::checkpoint

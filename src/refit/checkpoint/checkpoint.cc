// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0

#include "refit/checkpoint/checkpoint.h"

#include <filesystem>
#include <map>
#include <optional>
#include <system_error>
#include <utility>

#include <fmt/format.h>

#include "refit/checkpoint/file.h"
#include "refit/checkpoint/safetensors.h"
#include "refit/checkpoint/shard_index.h"

namespace refit::checkpoint {
namespace {

constexpr const char* kSingleFile = "model.safetensors";
constexpr const char* kIndexFile = "model.safetensors.index.json";
constexpr ByteCount kIndexMax = 100'000'000;

struct FoundTensor {
  weights::TensorSpec spec;
  Bytes bytes;
};

// Opens one file and appends its tensors in file order.
Result<std::unique_ptr<MappedFile>> MapShard(const std::string& path, std::vector<FoundTensor>& tensors) {
  REFIT_ASSIGN_OR_RETURN(auto file, MappedFile::Open(path));
  auto entries = ParseSafetensors(file->bytes());
  if (!entries.ok()) {
    return entries.status().WithContext(path);
  }
  for (SafetensorsEntry& entry : *entries) {
    const Bytes bytes = file->bytes().subspan(entry.begin, entry.end - entry.begin);
    tensors.push_back({std::move(entry.spec), bytes});
  }
  return file;
}

// Every tensor of `file_name` is listed for it, and is there no other time. Erases what it finds from `awaited`.
Status CheckAgainstIndex(const std::string& file_name, std::span<const FoundTensor> tensors,
                         const std::map<std::string, std::string>& index, std::map<std::string, std::string>& awaited) {
  for (const FoundTensor& tensor : tensors) {
    const auto listed = index.find(tensor.spec.name);
    if (listed == index.end() || listed->second != file_name) {
      return InvalidArgument(
          fmt::format("{} holds tensor {}, which {} {}", file_name, tensor.spec.name, kIndexFile,
                      listed == index.end() ? std::string("does not list") : "puts into " + listed->second),
          "download the checkpoint again, completely");
    }
    awaited.erase(tensor.spec.name);
  }
  return OkStatus();
}

Result<std::vector<std::unique_ptr<MappedFile>>> MapIndexed(const std::string& folder,
                                                            std::vector<FoundTensor>& tensors) {
  const std::string index_path = folder + "/" + kIndexFile;
  REFIT_ASSIGN_OR_RETURN(const std::string text, ReadFile(index_path, kIndexMax));
  auto index = ParseShardIndex(text);
  if (!index.ok()) {
    return index.status().WithContext(index_path);
  }
  std::map<std::string, std::vector<std::string>> shards;  // file name → tensors
  for (const auto& [tensor, file_name] : *index) {
    shards[file_name].push_back(tensor);
  }
  std::map<std::string, std::string> awaited = *index;
  std::vector<std::unique_ptr<MappedFile>> files;
  for (const auto& [file_name, names] : shards) {
    std::error_code error;
    if (!std::filesystem::exists(folder + "/" + file_name, error)) {
      return NotFound(fmt::format("{} names the shard {}, which is missing", index_path, file_name),
                      "download the checkpoint again, completely");
    }
    const std::size_t before = tensors.size();
    REFIT_ASSIGN_OR_RETURN(auto file, MapShard(folder + "/" + file_name, tensors));
    REFIT_RETURN_IF_ERROR(
        CheckAgainstIndex(file_name, std::span(tensors).subspan(before), *index, awaited).WithContext(folder));
    files.push_back(std::move(file));
  }
  if (!awaited.empty()) {
    return InvalidArgument(fmt::format("{} puts tensor {} into {}, which does not hold it", index_path,
                                       awaited.begin()->first, awaited.begin()->second),
                           "download the checkpoint again, completely");
  }
  return files;
}

Status CheckFolder(const std::string& folder) {
  std::error_code error;
  if (!std::filesystem::exists(folder, error)) {
    return NotFound(fmt::format("checkpoint folder {} does not exist", folder),
                    fmt::format("give a folder with config.json and {}", kSingleFile));
  }
  if (!std::filesystem::is_directory(folder, error)) {
    return InvalidArgument(fmt::format("{} is not a folder", folder),
                           fmt::format("give the folder that holds config.json and {}", kSingleFile));
  }
  return OkStatus();
}

// Model order where config.json tells it, then whatever is left in file order. An unreadable or foreign config.json is
// no error here: who needs it calls ReadModelConfig.
void SortByModelOrder(const std::string& folder, std::vector<FoundTensor>& tensors) {
  const auto config = ReadModelConfig(folder);
  if (!config.ok()) {
    return;
  }
  const auto expected = weights::ExpectedTensors(*config);
  if (!expected.ok()) {
    return;
  }
  std::vector<std::optional<std::size_t>> places(expected->tensor_count());
  std::vector<FoundTensor> rest;
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    if (const auto place = expected->Find(tensors[i].spec.name); place && !places[*place]) {
      places[*place] = i;
    } else {
      rest.push_back(tensors[i]);
    }
  }
  std::vector<FoundTensor> sorted;
  for (const auto& place : places) {
    if (place) {
      sorted.push_back(std::move(tensors[*place]));
    }
  }
  sorted.insert(sorted.end(), std::make_move_iterator(rest.begin()), std::make_move_iterator(rest.end()));
  tensors = std::move(sorted);
}

}  // namespace

struct Checkpoint::Mapping {
  std::unique_ptr<MappedFile> file;
};

Checkpoint::~Checkpoint() = default;

Result<std::unique_ptr<Checkpoint>> Checkpoint::Open(const std::string& folder) {
  REFIT_RETURN_IF_ERROR(CheckFolder(folder));
  std::vector<FoundTensor> tensors;
  std::vector<std::unique_ptr<MappedFile>> files;
  std::error_code error;
  if (const std::string single = folder + "/" + kSingleFile; std::filesystem::exists(single, error)) {
    REFIT_ASSIGN_OR_RETURN(auto file, MapShard(single, tensors));
    files.push_back(std::move(file));
  } else if (std::filesystem::exists(folder + "/" + kIndexFile, error)) {
    REFIT_ASSIGN_OR_RETURN(files, MapIndexed(folder, tensors));
  } else {
    return NotFound(fmt::format("{} has neither {} nor {}", folder, kSingleFile, kIndexFile),
                    "give a folder with a Hugging Face checkpoint in safetensors");
  }
  if (tensors.empty()) {
    return InvalidArgument(fmt::format("checkpoint {} has no tensors", folder), "give a checkpoint that has weights");
  }
  SortByModelOrder(folder, tensors);

  std::unique_ptr<Checkpoint> checkpoint(new Checkpoint);
  checkpoint->folder_ = folder;
  std::vector<weights::TensorSpec> specs;
  for (FoundTensor& tensor : tensors) {
    specs.push_back(std::move(tensor.spec));
    checkpoint->bytes_.push_back(tensor.bytes);
  }
  auto manifest = weights::Manifest::Make(std::move(specs));
  if (!manifest.ok()) {
    return manifest.status().WithContext(folder);
  }
  checkpoint->manifest_ = *std::move(manifest);
  for (auto& file : files) {
    checkpoint->mappings_.push_back(std::make_unique<Mapping>(Mapping{std::move(file)}));
  }
  return checkpoint;
}

}  // namespace refit::checkpoint

// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0

#include "refit/runtime/source.h"

#include <sys/stat.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <filesystem>
#include <system_error>
#include <thread>
#include <utility>

#include "refit/base/str.h"
#include "refit/device/copy.h"
#include "refit/device/hash.h"
#include "refit/exec/clock.h"
#include "refit/weights/model_config.h"
#include "refit/weights/reshard_plan.h"
#include "refit/weights/shard_layout.h"

namespace refit::runtime {
namespace {

constexpr ByteCount kGpuAlignment = 256;
constexpr unsigned kMaxHashThreads = 8;
constexpr Duration kUploadDeadline = std::chrono::seconds(120);

// The slice's bytes, row by row where it takes some columns only, as the engine stores them.
void HashSlice(const weights::SourceSlice& slice, Bytes tensor, ByteCount row_size, ByteCount item_size,
               device::ParameterHasher& hasher) {
  const ByteCount begin = static_cast<ByteCount>(slice.column_begin) * item_size;
  const ByteCount size = static_cast<ByteCount>(slice.column_count) * item_size;
  const auto row_begin = static_cast<ByteCount>(slice.row_begin);
  const auto row_count = static_cast<ByteCount>(slice.row_count);
  if (size == row_size) {
    hasher.Update(tensor.subspan(row_begin * row_size, row_count * row_size));
    return;
  }
  for (ByteCount row = row_begin; row < row_begin + row_count; ++row) {
    hasher.Update(tensor.subspan(row * row_size + begin, size));
  }
}

// One line per weight file: what tells that it was replaced or rewritten.
std::string FingerprintOf(const std::string& folder) {
  std::string fingerprint = folder;
  std::vector<std::string> files;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(folder, error)) {
    if (entry.path().extension() == ".safetensors" || entry.path().extension() == ".json") {
      files.push_back(entry.path());
    }
  }
  std::sort(files.begin(), files.end());
  for (const std::string& file : files) {
    struct stat info{};
    if (stat(file.c_str(), &info) == 0) {
      fingerprint += StrCat("\n", file, " ", info.st_dev, " ", info.st_ino, " ", info.st_size, " ", info.st_mtim.tv_sec,
                            ".", info.st_mtim.tv_nsec, " ", info.st_ctim.tv_sec, ".", info.st_ctim.tv_nsec);
    }
  }
  return fingerprint;
}

}  // namespace

Result<std::shared_ptr<Source>> Source::Open(const std::string& folder, std::optional<device::GpuOrdinal> gpu) {
  std::shared_ptr<Source> source(new Source());
  source->fingerprint_ = FingerprintOf(folder);
  REFIT_ASSIGN_OR_RETURN(source->checkpoint_, checkpoint::Checkpoint::Open(folder));
  source->manifest_ = std::make_shared<const weights::Manifest>(source->checkpoint_->manifest());
  source->plan_ = weights::MakeFullPlan(*source->manifest_);
  std::vector<weights::TensorSpec> specs;
  for (const weights::PlannedTensor& tensor : source->plan_.tensors) {
    specs.push_back(tensor.spec);
  }
  REFIT_ASSIGN_OR_RETURN(source->delivered_, weights::Manifest::Make(std::move(specs)));
  if (gpu.has_value()) {
    REFIT_RETURN_IF_ERROR(source->Upload(*gpu));
  }
  return source;
}

// Into one allocation, each tensor where vector loads like it.
Status Source::Upload(device::GpuOrdinal gpu) {
  ByteCount total = 0;
  for (const Bytes& tensor : tensors()) {
    total += RoundUp(tensor.size(), kGpuAlignment);
  }
  REFIT_ASSIGN_OR_RETURN(arena_, device::GpuArena::Allocate(gpu, std::max(total, kGpuAlignment)));
  REFIT_ASSIGN_OR_RETURN(const auto queue, device::GpuQueue::Make(gpu));
  ByteCount offset = 0;
  for (const Bytes& tensor : tensors()) {
    gpu_tensors_.push_back(arena_->memory().Part(offset, tensor.size()));
    offset += RoundUp(tensor.size(), kGpuAlignment);
    const device::GpuCopy copy{tensor.data(), gpu_tensors_.back().bytes.data(), tensor.size()};
    Status copied;
    REFIT_RETURN_IF_ERROR(device::GuardMapped(StrCat("a tensor of ", folder()), [&] {
      copied = queue->Copy({&copy, 1});  // from pageable memory: the bytes are read before this returns
    }));
    REFIT_RETURN_IF_ERROR(copied);
  }
  REFIT_ASSIGN_OR_RETURN(const device::GpuTicket ticket, queue->Mark());
  REFIT_RETURN_IF_ERROR(queue->Wait(ticket, exec::Now() + kUploadDeadline));
  gpu_ = gpu;
  return OkStatus();
}

bool Source::Unchanged() const { return FingerprintOf(folder()) == fingerprint_; }

Result<std::shared_ptr<const std::vector<stream::PackedBucket>>> Source::Cut(stream::PackUnit unit, ByteCount bytes) {
  const std::lock_guard lock(mutex_);
  auto& cut = cuts_[{unit, bytes}];
  if (cut == nullptr) {
    REFIT_ASSIGN_OR_RETURN(std::vector<stream::PackedBucket> packed, stream::Pack(plan_, unit, bytes));
    cut = std::make_shared<const std::vector<stream::PackedBucket>>(std::move(packed));
  }
  return cut;
}

Result<std::shared_ptr<const Source::EntrySums>> Source::GpuSums(stream::PackUnit unit, ByteCount bytes) {
  REFIT_ASSIGN_OR_RETURN(const auto cut, Cut(unit, bytes));
  const std::lock_guard lock(sums_mutex_);
  auto& known = sums_[{unit, bytes}];
  if (known != nullptr) {
    return known;
  }
  std::vector<device::GpuHashPart> parts;
  for (const stream::PackedBucket& packed : *cut) {
    if (packed.copies.size() != packed.bucket.entries.size()) {
      known = std::make_shared<const EntrySums>();
      return known;
    }
    for (const stream::Copy& copy : packed.copies) {
      const stream::Entry& entry = packed.bucket.entries[copy.entry];
      REFIT_ASSIGN_OR_RETURN(const ByteCount total, weights::SizeOf(entry.spec));
      parts.push_back(
          {gpu_tensors_[copy.source].bytes.data() + copy.source_offset, copy.size, entry.chunk_offset, total});
    }
  }
  std::vector<std::uint64_t> flat(parts.size());
  REFIT_ASSIGN_OR_RETURN(const auto queue, device::GpuQueue::Make(*gpu_));
  REFIT_RETURN_IF_ERROR(queue->Hash(parts, flat));
  REFIT_ASSIGN_OR_RETURN(const device::GpuTicket ticket, queue->Mark());
  REFIT_RETURN_IF_ERROR(queue->Wait(ticket, exec::Now() + kUploadDeadline));
  EntrySums sums;
  auto next = flat.begin();
  for (const stream::PackedBucket& packed : *cut) {
    const auto end = next + static_cast<std::ptrdiff_t>(packed.bucket.entries.size());
    sums.emplace_back(next, end);
    next = end;
  }
  known = std::make_shared<const EntrySums>(std::move(sums));
  return known;
}

Result<std::string> Source::HashOf(const weights::EngineParameter& parameter, device::ParameterHasher& hasher) const {
  hasher.Reset(static_cast<ByteCount>(parameter.row_count) * static_cast<ByteCount>(parameter.column_count) *
               weights::ItemSize(parameter.dtype));
  for (const weights::SourceSlice& slice : parameter.slices) {
    const auto index = manifest_->Find(slice.source);
    if (!index.has_value()) {
      return NotFound(StrCat("tensor ", slice.source, " is not in ", folder()), "give a complete checkpoint");
    }
    const Bytes tensor = checkpoint_->bytes(*index);
    const weights::TensorSpec& spec = manifest_->tensors()[*index];
    const ByteCount rows = spec.shape.empty() ? 1 : static_cast<ByteCount>(spec.shape[0]);
    REFIT_RETURN_IF_ERROR(device::GuardMapped(StrCat("tensor ", slice.source, " of ", folder()), [&] {
      HashSlice(slice, tensor, rows == 0 ? 0 : tensor.size() / rows, weights::ItemSize(spec.dtype), hasher);
    }));
  }
  return hasher.Finish();
}

Result<std::vector<weights::RankHashes>> Source::ExpectedHashes(weights::Hashing hashing) const {
  REFIT_ASSIGN_OR_RETURN(const weights::ModelConfig config, checkpoint::ReadModelConfig(folder()));
  std::vector<weights::RankHashes> ranks;
  std::vector<std::pair<std::size_t, weights::EngineParameter>> parameters;  // with the index of their rank
  for (std::uint32_t rank = 0; rank < hashing.tp_size; ++rank) {
    REFIT_ASSIGN_OR_RETURN(weights::EngineLayout layout,
                           weights::MakeSglangLayout(config, {TpRank(rank), std::int64_t{hashing.tp_size}}));
    ranks.push_back({TpRank(rank), {}});
    for (weights::EngineParameter& parameter : layout.parameters) {
      parameters.emplace_back(rank, std::move(parameter));
    }
  }
  // One thread hashes about a gigabyte in a second, and people wait for `verify`.
  std::vector<Result<std::string>> hashes(parameters.size(), std::string());
  std::atomic<std::size_t> next = 0;
  const auto work = [&] {
    const auto hasher = device::MakeParameterHasher(hashing.kind);
    for (std::size_t i = next++; i < parameters.size(); i = next++) {
      hashes[i] = HashOf(parameters[i].second, *hasher);
    }
  };
  {
    std::vector<std::jthread> threads;
    for (unsigned i = 1; i < std::min(std::thread::hardware_concurrency(), kMaxHashThreads); ++i) {
      threads.emplace_back(work);
    }
    work();
  }
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    REFIT_RETURN_IF_ERROR(hashes[i].status());
    ranks[parameters[i].first].hashes.emplace(parameters[i].second.name, *std::move(hashes[i]));
  }
  return ranks;
}

}  // namespace refit::runtime

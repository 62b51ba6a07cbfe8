// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0

#include "refit/device/gpu_hash.h"

#include <algorithm>
#include <cstring>
#include <memory>

#include "refit/base/check.h"
#include "refit/base/str.h"
#include "refit/device/gpu_hash_words.h"
#include "refit/device/hash.h"

namespace refit::device {
namespace {

// bytes: one tile, or the begin of one at the tensor's end.
std::uint64_t HashTile(Bytes bytes, ByteCount offset, ByteCount total) {
  std::uint32_t first = 0;
  std::uint32_t second = 0;
  auto index = static_cast<std::uint32_t>(offset / 4);
  const std::byte* at = bytes.data();
  for (std::size_t words = bytes.size() / 4; words > 0; --words, at += 4, ++index) {
    std::uint32_t value = 0;
    std::memcpy(&value, at, 4);  // little endian, as every machine that has a GPU
    first += gpu_hash::First(value, index);
    second += gpu_hash::Second(value, index);
  }
  if (const std::size_t rest = bytes.size() % 4; rest > 0) {
    std::uint32_t value = 0;
    std::memcpy(&value, at, rest);
    first += gpu_hash::First(value, index);
    second += gpu_hash::Second(value, index);
  }
  return gpu_hash::Tile(first, second, gpu_hash::Padded(total));
}

// Gathers whole tiles, whatever the pieces that it is given.
class GpuParameterHasher final : public ParameterHasher {
 public:
  void Reset(ByteCount total) override {
    total_ = total;
    offset_ = 0;
    sum_ = 0;
    tile_.clear();
  }

  void Update(Bytes bytes) override {
    while (!bytes.empty()) {
      if (tile_.empty() && bytes.size() >= kGpuHashTile) {
        const Bytes tiles = bytes.first(bytes.size() / kGpuHashTile * kGpuHashTile);
        Add(tiles);
        bytes = bytes.subspan(tiles.size());
        continue;
      }
      const Bytes part = bytes.first(std::min<std::size_t>(bytes.size(), kGpuHashTile - tile_.size()));
      tile_.insert(tile_.end(), part.begin(), part.end());
      bytes = bytes.subspan(part.size());
      if (tile_.size() == kGpuHashTile) {
        Add(tile_);
        tile_.clear();
      }
    }
  }

  std::string Finish() override {
    Add(tile_);
    REFIT_CHECK(offset_ == total_, "the size given to Reset enters the hash");
    return GpuHashText(FinishGpuHash(sum_, total_));
  }

 private:
  void Add(Bytes part) {
    sum_ += GpuHashSum(part, offset_, total_);
    offset_ += part.size();
  }

  ByteCount total_ = 0;
  ByteCount offset_ = 0;
  std::uint64_t sum_ = 0;
  std::vector<std::byte> tile_;
};

}  // namespace

std::uint64_t GpuHashSum(Bytes part, ByteCount offset, ByteCount total) {
  REFIT_CHECK(offset % kGpuHashTile == 0, "tiles are counted from the tensor's begin");
  std::uint64_t sum = 0;
  for (ByteCount at = 0; at < part.size(); at += kGpuHashTile) {
    sum += HashTile(part.subspan(at, std::min<ByteCount>(kGpuHashTile, part.size() - at)), offset + at, total);
  }
  return sum;
}

std::uint64_t FinishGpuHash(std::uint64_t sum, ByteCount total) {
  if (total == 0) {
    return 0;
  }
  sum = (sum ^ (sum >> 30)) * 0xBF58476D1CE4E5B9;
  sum = (sum ^ (sum >> 27)) * 0x94D049BB133111EB;
  return sum ^ (sum >> 31);
}

std::string GpuHashText(std::uint64_t hash) {
  constexpr std::string_view kDigits = "0123456789abcdef";
  std::string text(16, '0');
  for (auto digit = text.rbegin(); digit != text.rend(); ++digit, hash >>= 4) {
    *digit = kDigits[hash & 15];
  }
  return text;
}

std::unique_ptr<ParameterHasher> MakeGpuParameterHasher() { return std::make_unique<GpuParameterHasher>(); }

}  // namespace refit::device

// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0

// The contract's fuzz_bucket_meta (RC-BKT-14): any bytes, read as a sequence of buckets, are either refused or describe
// a piece whose parts are where they may be. Neither the check nor the assembler may crash or put a byte out of place.

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "refit/base/check.h"
#include "refit/stream/bucket.h"
#include "refit/stream/load_assembler.h"

namespace refit::stream {
namespace {

// Reads numbers and names off the input; zeros after its end.
class Input {
 public:
  Input(const std::uint8_t* data, std::size_t size) : data_(data), left_(size) {}

  bool empty() const { return left_ == 0; }
  std::uint8_t Byte() {
    if (left_ == 0) {
      return 0;
    }
    --left_;
    return *data_++;
  }
  // Small numbers are likely, and so are those at the edges of the types.
  std::uint64_t Number() {
    const std::uint8_t kind = Byte();
    if (kind < 0xe0) {
      return kind % 64;
    }
    std::uint64_t number = 0;
    for (int i = 0; i < 8; ++i) {
      number = (number << 8) | Byte();
    }
    return number;
  }
  std::string Name() { return std::string(Number() % (2 * weights::kMaxNameLength), static_cast<char>(Byte())); }

 private:
  const std::uint8_t* data_;
  std::size_t left_;
};

Entry ReadEntry(Input& input) {
  Entry entry;
  entry.spec.name = input.Name();
  entry.spec.dtype = static_cast<weights::DType>(input.Byte() % 12);
  entry.spec.shape.resize(input.Number() % (2 * weights::kMaxRank));
  for (std::int64_t& dimension : entry.spec.shape) {
    dimension = static_cast<std::int64_t>(input.Number());
  }
  entry.chunk_offset = input.Number();
  entry.chunk_size = input.Number();
  entry.offset = input.Number();
  return entry;
}

Bucket ReadBucket(Input& input, LoadSeq likely) {
  Bucket bucket;
  const std::uint8_t flags = input.Byte();
  bucket.seq = (flags & 0x0f) == 0x0f ? LoadSeq(input.Number()) : likely;
  bucket.is_last = (flags & 0x30) == 0x30;
  bucket.used = input.Number();
  bucket.entries.resize(input.Byte() % 8);
  for (Entry& entry : bucket.entries) {
    entry = ReadEntry(input);
  }
  return bucket;
}

// What a receiver knows of a load: sizes only, since a hostile one may be larger than any memory.
struct KnownLoad {
  ByteCount capacity = 0;
  ByteCount filled = 0;  // placements come in ascending order
};

void ExpectInPlace(const Bucket& piece, const AssemblyStep& step, std::vector<KnownLoad>& loads) {
  for (const OpenedLoad& opened : step.opened) {
    REFIT_CHECK(opened.number == loads.size(), "loads are numbered from 0");
    loads.push_back({.capacity = opened.capacity});
  }
  REFIT_CHECK(step.placements.size() == piece.entries.size(), "one placement per entry");
  for (const Placement& placement : step.placements) {
    REFIT_CHECK(placement.source_offset <= piece.used && placement.size <= piece.used - placement.source_offset,
                "out of the piece");
    REFIT_CHECK(placement.load < loads.size(), "no such load");
    KnownLoad& load = loads[placement.load];
    REFIT_CHECK(placement.target_offset >= load.filled, "overlap");
    REFIT_CHECK(placement.target_offset <= load.capacity && placement.size <= load.capacity - placement.target_offset,
                "out of the load");
    load.filled = placement.target_offset + placement.size;
  }
  for (const ClosedLoad& closed : step.closed) {
    REFIT_CHECK(closed.number < loads.size() && closed.used <= loads[closed.number].capacity, "past the end");
    REFIT_CHECK(closed.used == loads[closed.number].filled, "a load is closed with a hole at its end");
    for (const BatchTensor& tensor : closed.tensors) {
      REFIT_CHECK(tensor.location % weights::ItemSize(tensor.spec.dtype) == 0, "alignment");
      REFIT_CHECK(tensor.location + SizeOf(tensor.spec).value() <= closed.used, "a tensor past the end");
    }
  }
}

}  // namespace
}  // namespace refit::stream

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using refit::ByteCount;
  refit::stream::Input input(data, size);
  const ByteCount capacity = 1 + input.Number();
  refit::stream::LoadAssembler assembler(capacity, 1 + capacity % 97);
  std::vector<refit::stream::KnownLoad> loads;
  refit::LoadSeq seq;
  while (!input.empty()) {
    const refit::stream::Bucket piece = refit::stream::ReadBucket(input, seq);
    seq = seq.Next();
    const bool checked = CheckBucket(piece, capacity).ok();
    const auto step = assembler.Accept(piece);
    if (!step.ok()) {
      return 0;
    }
    REFIT_CHECK(checked && piece.used <= capacity, "the assembler accepts only what CheckBucket does");
    refit::stream::ExpectInPlace(piece, *step, loads);
  }
  return 0;
}

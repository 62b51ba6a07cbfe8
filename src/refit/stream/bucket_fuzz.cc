// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0

// The contract's fuzz_bucket_meta (RC-BKT-14): any bytes, read as a sequence of buckets, are either refused or describe
// a bucket whose parts are where they may be. Neither the check nor the merger may crash or accept a byte out of place.

#include <cstddef>
#include <cstdint>
#include <string>

#include "refit/base/check.h"
#include "refit/stream/bucket.h"
#include "refit/stream/bucket_merger.h"

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

void ExpectInBounds(const Bucket& bucket, const MergeStep& step, ByteCount assembly_size) {
  for (const Copy& copy : step.copies) {
    REFIT_CHECK(copy.source_offset <= bucket.used && copy.size <= bucket.used - copy.source_offset, "landing buffer");
    REFIT_CHECK(copy.target_offset <= assembly_size && copy.size <= assembly_size - copy.target_offset, "assembly");
    REFIT_CHECK(copy.entry < bucket.entries.size(), "entry");
  }
  ByteCount end = 0;
  for (const MergedTensor& tensor : step.tensors) {
    REFIT_CHECK(SizeOf(tensor.spec).value() == tensor.size, "size");
    if (tensor.reassembled) {
      REFIT_CHECK(tensor.size == assembly_size, "assembly of another tensor");
      continue;
    }
    REFIT_CHECK(tensor.offset >= end && tensor.offset <= bucket.used, "overlap");
    REFIT_CHECK(tensor.size <= bucket.used - tensor.offset, "past the end");
    REFIT_CHECK(tensor.offset % weights::ItemSize(tensor.spec.dtype) == 0, "alignment");
    end = tensor.offset + tensor.size;
  }
}

}  // namespace
}  // namespace refit::stream

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using refit::ByteCount;
  refit::stream::Input input(data, size);
  const ByteCount capacity = 1 + input.Number();
  refit::stream::BucketMerger merger(capacity);
  ByteCount assembly_size = 0;
  refit::LoadSeq seq;
  while (!input.empty()) {
    const refit::stream::Bucket bucket = refit::stream::ReadBucket(input, seq);
    seq = seq.Next();
    const bool checked = CheckBucket(bucket, capacity).ok();
    const auto step = merger.Accept(bucket);
    if (!step.ok()) {
      return 0;
    }
    REFIT_CHECK(checked && bucket.used <= capacity, "the merger accepts only what CheckBucket does");
    assembly_size = step->assembly_size.value_or(assembly_size);
    refit::stream::ExpectInBounds(bucket, *step, assembly_size);
  }
  return 0;
}

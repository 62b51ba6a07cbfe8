// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0

// Packing against a twin written straight from the contract's §6.1, and packing, moving and placing real bytes.

#include "refit/stream/bucket_packer.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "refit/base/str.h"
#include "refit/stream/load_assembler.h"

namespace refit::stream {
namespace {

using weights::DType;

constexpr int kSequences = 100000;  // RC-BKT-01
constexpr int kTransfers = 5000;

class Random {
 public:
  explicit Random(std::uint64_t seed) : engine_(seed) {}
  std::uint64_t Below(std::uint64_t limit) { return engine_() % limit; }

 private:
  std::mt19937_64 engine_;
};

// Delivered tensors of up to `max_rows` rows, each made of pieces of several sources; `sources` gets their bytes.
weights::ReshardPlan RandomPlan(Random& random, std::uint64_t max_count, std::uint64_t max_rows,
                                std::vector<std::string>* sources) {
  constexpr std::array kDTypes = {DType::kUint8, DType::kBfloat16, DType::kFloat32, DType::kFloat64};
  weights::ReshardPlan plan;
  const std::uint64_t count = random.Below(max_count + 1);
  std::size_t source_count = 0;
  for (std::uint64_t i = 0; i < count; ++i) {
    weights::PlannedTensor tensor;
    tensor.spec = {StrCat("t", i), kDTypes[random.Below(4)], {static_cast<std::int64_t>(random.Below(max_rows + 1))}};
    tensor.size = SizeOf(tensor.spec).value();
    for (ByteCount done = 0; done < tensor.size;) {
      const ByteCount size = 1 + random.Below(tensor.size - done);
      const ByteCount before = random.Below(4);
      tensor.copies.push_back({.source = source_count, .source_offset = before, .target_offset = done, .size = size});
      if (sources != nullptr) {
        std::string& bytes = sources->emplace_back(before + size, '\0');
        std::generate(bytes.begin(), bytes.end(), [&random] { return static_cast<char>(random.Below(256)); });
      }
      ++source_count;
      done += size;
    }
    plan.tensors.push_back(std::move(tensor));
  }
  return plan;
}

// §6.1, word for word; loads keep tensors uncut (RC-PAY-08).
std::vector<Bucket> PackSlowly(const weights::ReshardPlan& plan, PackUnit unit, ByteCount capacity) {
  std::vector<Bucket> buckets(1);
  for (const weights::PlannedTensor& tensor : plan.tensors) {
    std::vector<std::pair<ByteCount, ByteCount>> chunks;  // offset and size
    if (unit == PackUnit::kLoad || tensor.size == 0) {
      chunks = {{0, tensor.size}};
    } else {
      for (ByteCount at = 0; at < tensor.size; at += capacity) {
        chunks.emplace_back(at, std::min(capacity, tensor.size - at));
      }
    }
    for (const auto& [chunk_offset, chunk_size] : chunks) {
      ByteCount at = buckets.back().used;
      while (at % weights::ItemSize(tensor.spec.dtype) != 0) {
        ++at;
      }
      if (at + chunk_size > capacity && !buckets.back().entries.empty()) {
        buckets.emplace_back();
        at = 0;
      }
      buckets.back().entries.push_back(
          {.spec = tensor.spec, .chunk_offset = chunk_offset, .chunk_size = chunk_size, .offset = at});
      buckets.back().used = at + chunk_size;
    }
  }
  for (std::size_t i = 0; i < buckets.size(); ++i) {
    buckets[i].seq = LoadSeq(i);
  }
  buckets.back().is_last = true;
  return buckets;
}

std::vector<Bucket> BucketsOf(const std::vector<PackedBucket>& packed) {
  std::vector<Bucket> out;
  for (const PackedBucket& bucket : packed) {
    out.push_back(bucket.bucket);
  }
  return out;
}

// RC-BKT-01: exactly the contract's cuts, the same each time, whatever the sources of the bytes.
TEST(BucketPackerPropTest, CutsAsTheContractSaysOnEveryRun) {  // S81
  for (std::uint64_t seed = 1; seed <= kSequences && !testing::Test::HasFailure(); ++seed) {
    Random random(seed);
    const ByteCount capacity = 1 + random.Below(40);
    const PackUnit unit = random.Below(2) == 0 ? PackUnit::kPiece : PackUnit::kLoad;
    const weights::ReshardPlan plan = RandomPlan(random, 6, 12, nullptr);
    const std::vector<Bucket> buckets = BucketsOf(Pack(plan, unit, capacity).value());
    ASSERT_EQ(buckets, PackSlowly(plan, unit, capacity)) << "seed " << seed;
    weights::ReshardPlan other_sources = plan;
    for (weights::PlannedTensor& tensor : other_sources.tensors) {
      tensor.copies.clear();
      if (tensor.size > 0) {
        tensor.copies = {{.source = 7, .source_offset = 0, .target_offset = 0, .size = tensor.size}};
      }
    }
    ASSERT_EQ(BucketsOf(Pack(other_sources, unit, capacity).value()), buckets) << "seed " << seed;
  }
}

// Runs copies into `target`; each target byte may be written once.
void RunCopies(const CopyPlan& copies, const std::vector<std::string>& sources, std::string& target) {
  ByteCount previous_end = 0;
  for (const Copy& copy : copies) {
    ASSERT_LT(copy.source, sources.size());
    ASSERT_LE(copy.source_offset + copy.size, sources[copy.source].size());
    ASSERT_LE(copy.target_offset + copy.size, target.size());
    ASSERT_GE(copy.target_offset, previous_end) << "ascending by target";
    previous_end = copy.target_offset + copy.size;
    std::memcpy(target.data() + copy.target_offset, sources[copy.source].data() + copy.source_offset, copy.size);
  }
}

std::string ExpectedBytes(const weights::PlannedTensor& tensor, const std::vector<std::string>& sources) {
  std::string out;
  for (const weights::PlannedCopy& copy : tensor.copies) {
    out += sources[copy.source].substr(copy.source_offset, copy.size);
  }
  return out;
}

struct ReceivedLoad {
  ClosedLoad load;
  ByteCount capacity = 0;
  std::string bytes;     // of its memory
  ByteCount filled = 0;  // up to here; a load is filled in ascending order
};

// A receiver of pieces: fetches each of them out of one recycled staging buffer to where the assembler says.
class Receiver {
 public:
  Receiver(ByteCount piece_capacity, ByteCount load_bytes) : assembler_(piece_capacity, load_bytes) {}

  void Receive(const PackedBucket& packed, const std::vector<std::string>& sources) {
    std::string staging(packed.bucket.used, '\xee');
    RunCopies(packed.copies, sources, staging);
    const auto step = assembler_.Accept(packed.bucket);
    ASSERT_TRUE(step.ok()) << step.status().ToString();
    ASSERT_EQ(step->is_last, packed.bucket.is_last);
    for (const OpenedLoad& opened : step->opened) {
      ASSERT_EQ(opened.number, loads_.size());
      loads_.push_back({{}, opened.capacity, std::string(opened.capacity, '\xee'), 0});
    }
    ASSERT_EQ(step->placements.size(), packed.bucket.entries.size());
    for (std::size_t i = 0; i < step->placements.size(); ++i) {
      ASSERT_EQ(step->placements[i].source_offset, packed.bucket.entries[i].offset);
      ASSERT_EQ(step->placements[i].size, packed.bucket.entries[i].chunk_size);
      Fetch(step->placements[i], staging);
    }
    for (const ClosedLoad& closed : step->closed) {
      ASSERT_EQ(closed.number, closed_);
      loads_[closed_++].load = closed;
    }
  }

  const std::vector<ReceivedLoad>& loads() const { return loads_; }
  std::size_t closed() const { return closed_; }

 private:
  // Into memory that is there, is not closed yet, and was not written before.
  void Fetch(const Placement& placement, const std::string& staging) {
    ASSERT_LT(placement.load, loads_.size());
    ASSERT_GE(placement.load, closed_);
    ReceivedLoad& load = loads_[placement.load];
    ASSERT_GE(placement.target_offset, load.filled) << "placements overlap";
    ASSERT_LE(placement.target_offset + placement.size, load.bytes.size());
    load.filled = placement.target_offset + placement.size;
    std::memcpy(load.bytes.data() + placement.target_offset, staging.data() + placement.source_offset, placement.size);
  }

  LoadAssembler assembler_;
  std::vector<ReceivedLoad> loads_;
  std::size_t closed_ = 0;
};

// RC-BKT-02, -03, -05, -12, RC-PAY-08: cutting into pieces and fetching them into their place is the identity, byte for
// byte, in stream order, whatever the two sizes; the loads are those that Pack cuts for a transport without a link.
TEST(BucketPackerPropTest, PiecesMakeTheLoadsThatPackCuts) {
  for (std::uint64_t seed = 1; seed <= kTransfers && !testing::Test::HasFailure(); ++seed) {
    Random random(seed);
    std::vector<std::string> sources;
    const weights::ReshardPlan plan = RandomPlan(random, 12, 60, &sources);
    const ByteCount capacity = 1 + random.Below(100);
    const ByteCount load_bytes = 1 + random.Below(300);
    Receiver receiver(capacity, load_bytes);
    const auto pieces = Pack(plan, PackUnit::kPiece, capacity).value();
    for (const PackedBucket& packed : pieces) {
      ASSERT_NO_FATAL_FAILURE(receiver.Receive(packed, sources)) << "seed " << seed;
    }
    const auto expected = Pack(plan, PackUnit::kLoad, load_bytes).value();
    ASSERT_EQ(receiver.closed(), receiver.loads().size()) << "seed " << seed;
    ASSERT_EQ(receiver.closed(), plan.tensors.empty() ? 0 : expected.size()) << "seed " << seed;
    std::size_t next = 0;  // tensor of the plan
    for (std::size_t i = 0; i < receiver.closed(); ++i) {
      const ReceivedLoad& received = receiver.loads()[i];
      ASSERT_EQ(received.capacity, std::max(load_bytes, received.load.used)) << "seed " << seed;
      ASSERT_EQ(received.load.used, expected[i].bucket.used) << "seed " << seed;
      ASSERT_EQ(received.load.tensors.size(), expected[i].bucket.entries.size()) << "seed " << seed;
      for (std::size_t t = 0; t < received.load.tensors.size(); ++t, ++next) {
        const BatchTensor& tensor = received.load.tensors[t];
        ASSERT_EQ(tensor.location, expected[i].bucket.entries[t].offset) << "seed " << seed;
        ASSERT_EQ(tensor.spec, plan.tensors[next].spec) << "seed " << seed;
        ASSERT_EQ(received.bytes.substr(tensor.location, plan.tensors[next].size),
                  ExpectedBytes(plan.tensors[next], sources))
            << "seed " << seed << ", tensor " << next;
      }
    }
    ASSERT_EQ(next, plan.tensors.size()) << "seed " << seed;
  }
}

// RC-PAY-08: a load holds whole tensors, is within its size or one tensor alone, and its copies fill every entry.
TEST(BucketPackerPropTest, LoadsHoldWholeTensorsAndTheirCopiesFillThem) {
  for (std::uint64_t seed = 1; seed <= kTransfers && !testing::Test::HasFailure(); ++seed) {
    Random random(seed);
    std::vector<std::string> sources;
    const weights::ReshardPlan plan = RandomPlan(random, 12, 60, &sources);
    const ByteCount capacity = 1 + random.Below(200);
    const auto buckets = Pack(plan, PackUnit::kLoad, capacity).value();
    std::size_t next = 0;
    for (const PackedBucket& packed : buckets) {
      const Bucket& bucket = packed.bucket;
      ASSERT_LE(bucket.used, LargestBucket(buckets));
      ASSERT_TRUE(bucket.used <= capacity || bucket.entries.size() == 1) << "seed " << seed;
      ASSERT_TRUE(CheckBucket(bucket, std::max(capacity, bucket.used)).ok()) << "seed " << seed;
      std::string load(bucket.used, '\xee');
      RunCopies(packed.copies, sources, load);
      for (const Entry& entry : bucket.entries) {
        ASSERT_LT(next, plan.tensors.size());
        ASSERT_EQ(entry.spec, plan.tensors[next].spec) << "seed " << seed;
        ASSERT_EQ(load.substr(entry.offset, entry.chunk_size), ExpectedBytes(plan.tensors[next], sources));
        ++next;
      }
    }
    ASSERT_EQ(next, plan.tensors.size()) << "seed " << seed;
  }
}

// RC-BKT-04: dropping, repeating or swapping any bucket that holds bytes never delivers a complete set.
TEST(BucketPackerPropTest, ADamagedStreamIsNeverTakenForComplete) {  // S57
  for (std::uint64_t seed = 1; seed <= kTransfers && !testing::Test::HasFailure(); ++seed) {
    Random random(seed);
    const ByteCount capacity = 1 + random.Below(30);
    const weights::ReshardPlan plan = RandomPlan(random, 6, 40, nullptr);
    std::vector<Bucket> buckets = BucketsOf(Pack(plan, PackUnit::kPiece, capacity).value());
    if (buckets.size() < 3) {
      continue;
    }
    const std::size_t at = random.Below(buckets.size() - 1);
    const auto position = buckets.begin() + static_cast<std::ptrdiff_t>(at);
    switch (random.Below(3)) {
      case 0: buckets.erase(position); break;
      case 1: buckets.insert(position, buckets[at]); break;
      default: std::iter_swap(position, position + 1); break;
    }
    LoadAssembler assembler(capacity, 1 + random.Below(60));
    const bool accepted = std::all_of(buckets.begin(), buckets.end(),
                                      [&assembler](const Bucket& bucket) { return assembler.Accept(bucket).ok(); });
    EXPECT_FALSE(accepted) << "seed " << seed;
  }
}

}  // namespace
}  // namespace refit::stream

// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0

// Random layouts through the poisoned recycling pool (RC-RX-03): whatever the ranks' batch boundaries are, every rank
// must get its own bytes of every tensor, once, in order, from views that are still alive.

#include "refit/stream/name_aligner.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "refit/base/mutant.h"
#include "refit/base/str.h"
#include "tests/support/poison_pool.h"

namespace refit::stream {
namespace {

using test::PoisonPool;
using test::PooledTensor;
using weights::DType;

constexpr int kLayouts = 2000;

class Random {
 public:
  explicit Random(std::uint64_t seed) : engine_(seed) {}
  std::size_t Below(std::size_t limit) { return engine_() % limit; }
  std::mt19937_64& engine() { return engine_; }

 private:
  std::mt19937_64 engine_;
};

// What one rank is sent, and where its batches end.
struct Stream {
  std::vector<PooledTensor> tensors;
  std::set<std::size_t> ends;  // counts of tensors after which a batch ends; holds tensors.size()

  PoisonPool Pool() const {
    std::vector<std::vector<PooledTensor>> batches;
    std::size_t begin = 0;
    for (const std::size_t end : ends) {
      batches.emplace_back(tensors.begin() + static_cast<std::ptrdiff_t>(begin),
                           tensors.begin() + static_cast<std::ptrdiff_t>(end));
      begin = end;
    }
    return PoisonPool(std::move(batches));
  }
};

// Equal names and dtypes; rows and bytes are of the rank's own.
std::vector<Stream> RandomStreams(Random& random, std::size_t rank_count) {
  const std::size_t tensor_count = 1 + random.Below(20);
  std::vector<Stream> streams(rank_count);
  for (std::size_t i = 0; i < tensor_count; ++i) {
    const DType dtype = random.Below(2) == 0 ? DType::kUint8 : DType::kBfloat16;
    for (std::size_t r = 0; r < rank_count; ++r) {
      const auto rows = static_cast<std::int64_t>(2 + random.Below(6));
      PooledTensor tensor{.spec = {StrCat("tensor.", i), dtype, {rows, 2}}, .bytes = {}};
      const std::string content = StrCat("rank ", r, " tensor ", i, ";");
      while (tensor.bytes.size() < SizeOf(tensor.spec).value()) {
        tensor.bytes += content;
      }
      tensor.bytes.resize(SizeOf(tensor.spec).value());
      streams[r].tensors.push_back(std::move(tensor));
    }
  }
  const std::size_t density = 1 + random.Below(5);
  for (Stream& stream : streams) {
    stream.ends.insert(tensor_count);
    for (std::size_t end = 1; end < tensor_count; ++end) {
      if (random.Below(density) == 0) {
        stream.ends.insert(end);
      }
    }
  }
  return streams;
}

// The names of each group, and per rank the bytes that its views showed when the group was consumed.
struct Outcome {
  std::vector<std::vector<std::string>> groups;
  std::vector<std::vector<std::string>> contents;
  std::string error;
};

// Serves Wanted() in an order of `random`'s choice.
Outcome Align(const std::vector<Stream>& streams, Random& random) {
  std::vector<PoisonPool> pools;
  std::size_t steps_left = streams.size() + 1;  // RC-ALN-04
  for (const Stream& stream : streams) {
    pools.push_back(stream.Pool());
    steps_left += stream.tensors.size();
  }
  NameAligner aligner(streams.size());
  Outcome outcome;
  outcome.contents.resize(streams.size());
  while (steps_left-- > 0) {
    std::vector<std::size_t> wanted = aligner.Wanted();
    std::shuffle(wanted.begin(), wanted.end(), random.engine());
    for (const std::size_t r : wanted) {
      if (const Status status = aligner.Accept(r, pools[r].Pull()); !status.ok()) {
        outcome.error = status.message();
        return outcome;
      }
    }
    auto group = aligner.Next();
    if (!group.ok() || !group->has_value()) {
      outcome.error = group.status().message();
      return outcome;
    }
    std::vector<std::string>& names = outcome.groups.emplace_back();
    for (std::size_t r = 0; r < streams.size(); ++r) {
      for (const BatchTensor& tensor : (**group)[r]) {
        outcome.contents[r].push_back(pools[r].Read(tensor));
        if (r == 0) {
          names.push_back(tensor.spec.name);
        }
      }
    }
  }
  outcome.error = "more rounds than entries, ranks and one";
  return outcome;
}

// The slow twin: a group ends wherever any rank's batch ends.
std::vector<std::vector<std::string>> ExpectedGroups(const std::vector<Stream>& streams) {
  std::vector<std::vector<std::string>> groups(1);
  for (std::size_t i = 0; i < streams[0].tensors.size(); ++i) {
    groups.back().push_back(streams[0].tensors[i].spec.name);
    const bool ends =
        std::any_of(streams.begin(), streams.end(), [i](const Stream& stream) { return stream.ends.contains(i + 1); });
    if (ends) {
      groups.emplace_back();
    }
  }
  groups.pop_back();
  return groups;
}

void ExpectExact(const std::vector<Stream>& streams, const Outcome& outcome, const std::string& what) {
  EXPECT_EQ(outcome.error, "") << what;
  EXPECT_EQ(outcome.groups, ExpectedGroups(streams)) << what;
  for (std::size_t r = 0; r < streams.size(); ++r) {
    std::vector<std::string> expected;
    for (const PooledTensor& tensor : streams[r].tensors) {
      expected.push_back(tensor.bytes);
    }
    EXPECT_EQ(outcome.contents[r], expected) << what << ", rank " << r;
  }
}

// RC-RX-01, -03, RC-ALN-01 … -04: contents per rank, over random layouts, in any order of arrival.
TEST(NameAlignerPropTest, EveryRankGetsItsOwnBytesOnceInOrderFromLiveViews) {
  for (std::uint64_t seed = 1; seed <= kLayouts && !testing::Test::HasFailure(); ++seed) {
    Random random(seed);
    const std::vector<Stream> streams = RandomStreams(random, 1 + random.Below(4));
    ExpectExact(streams, Align(streams, random), StrCat("seed ", seed));
  }
}

// The same with layouts that surely differ: a run on equal layouts would prove nothing (RC-ALN-07).
TEST(NameAlignerPropTest, LayoutsOfDifferentBatchCountsAlign) {  // S81
  int run = 0;
  for (std::uint64_t seed = 1; run < 200 && !testing::Test::HasFailure(); ++seed) {
    Random random(seed);
    std::vector<Stream> streams = RandomStreams(random, 2 + random.Below(7));
    if (REFIT_MUTANT("RC-ALN-07/equal-layouts", false, true)) {
      for (Stream& stream : streams) {
        stream.ends = streams[0].ends;
      }
    } else if (streams[0].ends.size() == streams[1].ends.size()) {
      continue;
    }
    ++run;
    ASSERT_NE(streams[0].Pool().batch_count(), streams[1].Pool().batch_count());
    ExpectExact(streams, Align(streams, random), StrCat("seed ", seed));
  }
}

// RC-ALN-04, -05: whatever is wrong, and on whichever rank, the aligner ends with an error within its bound.
TEST(NameAlignerPropTest, AnyDivergenceEndsInAnError) {
  for (std::uint64_t seed = 1; seed <= kLayouts && !testing::Test::HasFailure(); ++seed) {
    Random random(seed);
    std::vector<Stream> streams = RandomStreams(random, 2 + random.Below(3));
    Stream& changed = streams[random.Below(streams.size())];
    const std::size_t tensor = random.Below(changed.tensors.size());
    const std::size_t kind = random.Below(3);
    if (kind == 0) {
      changed.tensors[tensor].spec.name += ".other";
    } else if (kind == 1) {
      changed.tensors[tensor].spec.dtype = DType::kFloat8E4m3;
    } else {
      changed.tensors.resize(tensor);
      changed.ends.erase(changed.ends.lower_bound(tensor), changed.ends.end());
      if (tensor > 0) {
        changed.ends.insert(tensor);
      }
    }
    const std::string error = Align(streams, random).error;
    const std::string expected = kind == 2 ? "STREAMS_ENDED_DIFFERENTLY" : "ORDER_DIVERGED";
    EXPECT_NE(error.find(expected), std::string::npos) << "seed " << seed << ", kind " << kind << ": " << error;
  }
}

}  // namespace
}  // namespace refit::stream

// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0
//
// What one TP rank holds, parameter by parameter, as hashes: as an engine reports it, and as a policy worker computes
// what must be there (RX-SUM-05). Comparing the two is `verify`.

#pragma once

#include <compare>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "refit/base/digest.h"
#include "refit/base/ids.h"

namespace refit::weights {

// What the hashes of a set of weights depend on besides the weights.
struct Hashing {
  std::uint32_t tp_size = 1;
  ParameterHashKind kind = ParameterHashKind::kSha256Prefix;

  friend auto operator<=>(const Hashing&, const Hashing&) = default;
};

struct RankHashes {
  TpRank rank;
  std::map<std::string, std::string> hashes;  // engine parameter name -> 16 hexadecimal digits

  friend bool operator==(const RankHashes&, const RankHashes&) = default;
};

struct HashDifference {
  TpRank rank;
  std::string parameter;  // empty: the whole rank is missing
  std::string expected;   // empty: the engine has a parameter that must not be there
  std::string actual;     // empty: the engine lacks it

  friend bool operator==(const HashDifference&, const HashDifference&) = default;
};

// Every difference, by rank and name. Compares the *set* of names and every hash on every rank: never only what both
// have.
std::vector<HashDifference> CompareRankHashes(const std::vector<RankHashes>& expected,
                                              const std::vector<RankHashes>& actual);

}  // namespace refit::weights

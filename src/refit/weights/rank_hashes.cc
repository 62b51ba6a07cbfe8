// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0

#include "refit/weights/rank_hashes.h"

#include <utility>

#include "refit/base/mutant.h"

namespace refit::weights {
namespace {

std::map<TpRank, const RankHashes*> ByRank(const std::vector<RankHashes>& all) {
  std::map<TpRank, const RankHashes*> by_rank;
  for (const RankHashes& one : all) {
    by_rank[one.rank] = &one;
  }
  return by_rank;
}

void CompareRank(const RankHashes& expected, const RankHashes& actual, std::vector<HashDifference>& out) {
  std::map<std::string, HashDifference> differences;
  for (const auto& [name, hash] : expected.hashes) {
    const auto found = actual.hashes.find(name);
    if (REFIT_MUTANT("RX-SUM-05/intersection", false, found == actual.hashes.end())) {
      continue;
    }
    if (found == actual.hashes.end()) {
      differences[name] = {expected.rank, name, hash, ""};
    } else if (found->second != hash) {
      differences[name] = {expected.rank, name, hash, found->second};
    }
  }
  for (const auto& [name, hash] : actual.hashes) {
    if (!expected.hashes.contains(name)) {
      differences[name] = {expected.rank, name, "", hash};
    }
  }
  for (auto& [name, difference] : differences) {
    out.push_back(std::move(difference));
  }
}

}  // namespace

std::vector<HashDifference> CompareRankHashes(const std::vector<RankHashes>& expected,
                                              const std::vector<RankHashes>& actual) {
  const auto wanted = ByRank(expected);
  const auto held = ByRank(actual);
  std::vector<HashDifference> differences;
  for (const auto& [rank, hashes] : wanted) {
    if (REFIT_MUTANT("RX-SUM-05/rank-0-only", false, rank != TpRank(0))) {
      continue;
    }
    const auto found = held.find(rank);
    if (found == held.end()) {
      differences.push_back({rank, "", "present", ""});
    } else {
      CompareRank(*hashes, *found->second, differences);
    }
  }
  for (const auto& [rank, hashes] : held) {
    if (!wanted.contains(rank)) {
      differences.push_back({rank, "", "", "present"});
    }
  }
  return differences;
}

}  // namespace refit::weights

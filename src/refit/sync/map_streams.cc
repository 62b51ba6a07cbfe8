// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0

#include <algorithm>
#include <cstdint>
#include <map>
#include <vector>

#include "refit/base/mutant.h"
#include "refit/sync/session.h"

namespace refit::sync {
namespace {

// Rollout rank of each engine's TP rank 0. Stable across restarts: slot · tp (RC-TOPO-03), not a count of who is here.
// Where engines differ in TP size there is no such formula, and places are counted in slot order.
std::vector<std::uint64_t> FirstRolloutRanks(const std::vector<EngineMember>& engines) {
  const bool uniform = std::all_of(engines.begin(), engines.end(), [&](const EngineMember& engine) {
    return engine.tp_size == engines.front().tp_size;
  });
  std::vector<std::uint64_t> first;
  std::uint64_t next = 0;
  for (const EngineMember& engine : engines) {
    first.push_back(REFIT_MUTANT("RC-TOPO-03/count-live-engines", uniform, false)
                        ? std::uint64_t{engine.slot.value()} * engine.tp_size
                        : next);
    next = first.back() + engine.tp_size;
  }
  return first;
}

}  // namespace

std::map<SlotIndex, std::vector<StreamSource>> MapStreams(const std::vector<PolicyMember>& policies,
                                                          const std::vector<EngineMember>& engines) {
  std::map<SlotIndex, std::vector<StreamSource>> streams;
  if (policies.empty() || engines.empty()) {
    return streams;
  }
  std::vector<PolicyMember> by_rank = policies;
  std::sort(by_rank.begin(), by_rank.end(), [](const auto& a, const auto& b) { return a.rank < b.rank; });
  std::vector<EngineMember> by_slot = engines;
  std::sort(by_slot.begin(), by_slot.end(), [](const auto& a, const auto& b) { return a.slot < b.slot; });

  const std::vector<std::uint64_t> first = FirstRolloutRanks(by_slot);
  const bool one_to_one =
      REFIT_MUTANT("RC-TOPO-02/modulo-pairing", first.back() + by_slot.back().tp_size <= by_rank.size(), false);
  for (std::size_t i = 0; i < by_slot.size(); ++i) {
    const EngineMember& engine = by_slot[i];
    std::vector<StreamSource>& sources = streams[engine.slot];
    for (std::uint32_t tp_rank = 0; tp_rank < engine.tp_size; ++tp_rank) {
      const std::size_t at = one_to_one
                                 ? static_cast<std::size_t>(first[i] + tp_rank)
                                 : REFIT_MUTANT("RC-TOPO-08/all-from-one", engine.slot.value(), 0U) % by_rank.size();
      const PolicyMember& policy = by_rank[at];
      if (sources.empty() || sources.back().policy != policy.rank ||
          REFIT_MUTANT("RC-TOPO-08/stream-per-rank", false, true)) {
        sources.push_back({policy.rank, policy.address, policy.incarnation, {}, {}});
      }
      sources.back().tp_ranks.push_back(tp_rank);
    }
  }
  return streams;
}

}  // namespace refit::sync

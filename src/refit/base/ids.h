// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0
//
// The identities of the glossary: who may act (term), which try (attempt), which life (incarnation), which weights
// (version). Numbers only ever grow; 128-bit ones are random and never reused.

#pragma once

#include <compare>
#include <cstdint>
#include <string>

#include "refit/base/strong_int.h"

namespace refit {

using SlotIndex = StrongInt<struct SlotIndexTag, std::uint32_t>;          // a place in the fleet
using PolicyRank = StrongInt<struct PolicyRankTag, std::uint32_t>;        // a trainer rank
using TpRank = StrongInt<struct TpRankTag, std::uint32_t>;                // a rank inside one engine
using WeightVersion = StrongInt<struct WeightVersionTag, std::uint64_t>;  // 0: none published yet
using Term = StrongInt<struct TermTag, std::uint32_t>;                    // a controller's reign; 0: none
using CommandSeq = StrongInt<struct CommandSeqTag, std::uint64_t>;        // per agent, strictly increasing
using LinkId = StrongInt<struct LinkIdTag, std::uint64_t>;    // a bound link of one incarnation; 0: none, never reused
using LoadSeq = StrongInt<struct LoadSeqTag, std::uint64_t>;  // position of a load in its stream

// One try of a session. Attempts of different controllers never collide (settled C12).
struct AttemptId {
  Term term;
  std::uint32_t n = 0;

  friend constexpr auto operator<=>(const AttemptId&, const AttemptId&) = default;
  constexpr std::uint64_t packed() const { return (static_cast<std::uint64_t>(term.value()) << 32) | n; }
  static constexpr AttemptId FromPacked(std::uint64_t packed) {
    return {Term(static_cast<std::uint32_t>(packed >> 32)), static_cast<std::uint32_t>(packed)};
  }
};
std::string ToString(AttemptId attempt);  // "3:1"

struct Id128 {
  std::uint64_t high = 0;
  std::uint64_t low = 0;
  friend constexpr auto operator<=>(const Id128&, const Id128&) = default;
  constexpr bool is_zero() const { return high == 0 && low == 0; }
};
std::string ToHex(const Id128& id);  // 32 hexadecimal digits

// One life of the process in a slot. Zero means "unknown" and matches nothing.
struct Incarnation : Id128 {
  friend constexpr auto operator<=>(const Incarnation&, const Incarnation&) = default;
};
// One life of a job.
struct RunId : Id128 {
  friend constexpr auto operator<=>(const RunId&, const RunId&) = default;
};

}  // namespace refit

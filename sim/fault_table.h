// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0
//
// What each kind of fault is about, and how people write it: the one table behind drawing, reading and writing plans.

#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "sim/plan.h"

namespace refit::sim {

enum class FaultShape : std::uint8_t {
  kPlain,    // "kill the controller"
  kSlot,     // "kill engine 1"
  kPolicy,   // "kill policy 0"
  kCall,     // "refuse update of engine 1"
  kBetween,  // "partition controller -> agent 1"
  kPair,     // "cut the data of policy 0 -> agent 1"
};
enum class FaultNeeds : std::uint8_t { kNothing, kFaultTolerance, kRouter, kLink };
enum class FaultLasts : std::uint8_t { kOnce, kAWhile };

struct FaultRow {
  FaultKind kind;
  std::string_view name;    // in counts: one word
  std::string_view phrase;  // in plans, before whom it is about
  FaultShape shape;
  FaultNeeds needs;
  FaultLasts lasts;
};

std::span<const FaultRow> FaultTable();  // in the order of FaultKind
const FaultRow& RowOf(FaultKind kind);
std::string_view ToString(FaultKind kind);

inline constexpr std::uint32_t kMostEngines = 16;
inline constexpr std::uint32_t kMostTp = 8;

// Whether anything is ever sent that way.
bool IsLink(const Process& from, const Process& to);

}  // namespace refit::sim

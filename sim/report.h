// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0
//
// A batch as people and programs read it.

#pragma once

#include <string>
#include <vector>

#include "sim/batch.h"

namespace refit::sim {

std::string BatchText(const BatchOptions& options, const Batch& batch);
std::string BatchJson(const BatchOptions& options, const Batch& batch);
std::string HashText(std::uint64_t hash);                  // 16 hexadecimal digits
std::vector<std::string> Uncovered(const Totals& totals);  // arrows of the slot machine that no run took

}  // namespace refit::sim

// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0
//
// A profile is a constant struct of one machine (settled C5): nothing anywhere asks "is it strict?".
// Contract §II.15 says what each field replaces.

#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "refit/stream/update_group.h"

namespace refit::sync {

enum class OnEngineLoss : std::uint8_t { kFail, kDetach };
enum class OnTransferFailure : std::uint8_t {
  kLatch,
  kNextSync
};  // strict latches; else the next sync sends the full set
enum class OnBindFailure : std::uint8_t { kLatch, kRetry };  // RC-BIND-05, RX-BIND-04
enum class RecoveryUnit : std::uint8_t { kCohort, kSlot };   // what one recovery launches: every empty slot, or one
enum class RecoverWhen : std::uint8_t { kSync, kNow };       // RC-ROLE-06
enum class StepBarrier : std::uint8_t { kFleet, kEngine };
enum class VersionLabel : std::uint8_t { kOnEveryUpdate, kAtActivation };  // RC-VER-01, D6

struct Profile {
  std::string_view name;
  OnEngineLoss on_engine_loss;
  OnTransferFailure on_transfer_failure;
  OnBindFailure on_bind_failure;
  std::uint32_t max_attempts;  // of one sync (RX-XFER, contract §II.4)
  RecoveryUnit recovery;
  RecoverWhen recover_when;
  std::uint32_t probe_failures;  // in a row, until an engine is quarantined (RX-QUAR-06)
  StepBarrier step_barrier;
  std::uint32_t min_serving;  // engines that must hold the version for it to be published; 0 means all
  stream::DTypeSplit dtype_split;
  VersionLabel version_label;
};

inline constexpr Profile kStrict{
    .name = "strict",
    .on_engine_loss = OnEngineLoss::kFail,
    .on_transfer_failure = OnTransferFailure::kLatch,
    .on_bind_failure = OnBindFailure::kLatch,
    .max_attempts = 1,
    .recovery = RecoveryUnit::kCohort,
    .recover_when = RecoverWhen::kSync,
    .probe_failures = 1,
    .step_barrier = StepBarrier::kFleet,
    .min_serving = 0,
    .dtype_split = stream::DTypeSplit::kByDType,
    .version_label = VersionLabel::kOnEveryUpdate,
};
inline constexpr Profile kResilient{
    .name = "resilient",
    .on_engine_loss = OnEngineLoss::kDetach,
    .on_transfer_failure = OnTransferFailure::kNextSync,
    .on_bind_failure = OnBindFailure::kRetry,
    .max_attempts = 3,
    .recovery = RecoveryUnit::kSlot,
    .recover_when = RecoverWhen::kNow,
    .probe_failures = 3,
    .step_barrier = StepBarrier::kEngine,
    .min_serving = 1,
    .dtype_split = stream::DTypeSplit::kMixed,
    .version_label = VersionLabel::kAtActivation,
};

}  // namespace refit::sync

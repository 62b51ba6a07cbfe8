// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0

#include "sim/shrink.h"

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace refit::sim {
namespace {

class Shrinker {
 public:
  Shrinker(const Plan& plan, const StillFails& fails, std::uint32_t most_tries)
      : best_{plan, 0}, fails_(fails), most_tries_(most_tries) {}

  Shrunk Run() {
    do {
      shrank_ = false;
      LeaveFaultsOut();
      LowerSizes();
      UsualSettings();
      SimplifyFaults();
    } while (shrank_ && best_.tried < most_tries_);
    return best_;
  }

 private:
  bool Try(Plan plan) {
    if (plan == best_.plan || best_.tried >= most_tries_ || !CheckPlan(plan).ok()) {
      return false;
    }
    ++best_.tried;
    if (!fails_(plan)) {
      return false;
    }
    best_.plan = std::move(plan);
    shrank_ = true;
    return true;
  }

  // Halves, then quarters, …, then one by one.
  void LeaveFaultsOut() {
    for (std::size_t chunk = best_.plan.faults.size(); chunk > 0; chunk /= 2) {
      for (std::size_t at = 0; at < best_.plan.faults.size();) {
        Plan smaller = best_.plan;
        const auto begin = smaller.faults.begin() + static_cast<std::ptrdiff_t>(at);
        smaller.faults.erase(begin, begin + static_cast<std::ptrdiff_t>(std::min(chunk, smaller.faults.size() - at)));
        if (!Try(std::move(smaller))) {
          at += chunk;
        }
      }
    }
  }

  // The lowest first, then what lies between.
  void Lower(std::uint32_t low, const std::function<std::uint32_t&(Plan&)>& of) {
    while (of(best_.plan) > low) {
      const std::uint32_t now = of(best_.plan);
      bool lowered = false;
      for (const std::uint32_t candidate : {low, low + (now - low) / 2, now - 1}) {
        Plan smaller = best_.plan;
        of(smaller) = candidate;
        if (candidate < now && candidate >= low && Try(std::move(smaller))) {
          lowered = true;
          break;
        }
      }
      if (!lowered) {
        return;
      }
    }
  }
  void LowerNumber(std::uint32_t low, std::uint32_t Plan::* member) {
    Lower(low, [member](Plan& plan) -> std::uint32_t& { return plan.*member; });
  }

  void LowerSizes() {
    LowerNumber(1, &Plan::engines);
    LowerNumber(1, &Plan::tp_size);
    LowerNumber(1, &Plan::policies);
    LowerNumber(1, &Plan::requests);
    LowerNumber(1, &Plan::tensors);
  }

  template <typename Value>
  void Usual(Value Plan::* member) {
    Plan usual = best_.plan;
    usual.*member = Plan{}.*member;
    Try(std::move(usual));
  }
  void UsualSettings() {
    Usual(&Plan::strict);
    Usual(&Plan::family);
    Usual(&Plan::fault_tolerance);
    Usual(&Plan::router);
    Usual(&Plan::link);
    Usual(&Plan::load_bytes);
    Usual(&Plan::request_interval);
    Usual(&Plan::sync_budget);
  }

  // Halved as long as it still fails. In milliseconds: fine enough, and it ends.
  void LowerTime(const std::function<Duration&(Plan&)>& of) {
    constexpr Duration kStep = std::chrono::milliseconds(1);
    bool lowered = true;
    while (lowered && of(best_.plan) > Duration::zero()) {
      Plan sooner = best_.plan;
      of(sooner) = of(sooner) / 2 / kStep * kStep;
      lowered = Try(std::move(sooner));
    }
  }

  void SimplifyFaults() {
    for (std::size_t i = 0; i < best_.plan.faults.size(); ++i) {
      Lower(1, [i](Plan& plan) -> std::uint32_t& { return plan.faults[i].count; });
      Lower(0, [i](Plan& plan) -> std::uint32_t& { return plan.faults[i].when.skip; });
      Lower(0, [i](Plan& plan) -> std::uint32_t& { return plan.faults[i].when.slot; });
      Lower(0, [i](Plan& plan) -> std::uint32_t& { return plan.faults[i].target; });
      LowerTime([i](Plan& plan) -> Duration& { return plan.faults[i].when.at; });
      LowerTime([i](Plan& plan) -> Duration& { return plan.faults[i].lasts; });
      LowerTime([i](Plan& plan) -> Duration& { return plan.faults[i].by; });
    }
  }

  Shrunk best_;
  const StillFails& fails_;
  const std::uint32_t most_tries_;
  bool shrank_ = false;
};

}  // namespace

Shrunk Shrink(const Plan& plan, const StillFails& fails, std::uint32_t most_tries) {
  return Shrinker(plan, fails, most_tries).Run();
}

}  // namespace refit::sim

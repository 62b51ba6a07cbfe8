// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0
//
// The wire: what one process tells another arrives after a while, in order, once, unless the plan says otherwise. Who
// reads a message looks up its addressee when it arrives.

#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <utility>

#include "refit/base/time.h"
#include "sim/plan.h"

namespace refit::sim {

class World;

class Network {
 public:
  explicit Network(World& world);

  // deliver runs when the message arrives; again, where the plan doubles it. False: it is lost.
  bool Send(Process from, Process to, std::function<void()> deliver);

 private:
  World& world_;
  Duration most_;                          // a message takes up to this long, on this run's network
  std::map<std::uint64_t, Instant> last_;  // of each direction of each pair: nothing arrives before it
};

}  // namespace refit::sim

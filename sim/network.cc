// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0

#include "sim/network.h"

#include <algorithm>

#include "sim/faults.h"
#include "sim/world.h"

namespace refit::sim {
namespace {

std::uint64_t Direction(Process from, Process to) {
  const auto end = [](Process process) { return static_cast<std::uint64_t>(process.kind) << 24U | process.index; };
  return end(from) << 32U | end(to);
}

}  // namespace

Network::Network(World& world) : world_(world), most_(world.Between(Micros(100), Micros(3000))) {}

bool Network::Send(Process from, Process to, std::function<void()> deliver) {
  const LinkFault fault = world_.faults().TakeLink(from, to);
  if (fault.lost) {
    world_.Note("lost: ", static_cast<int>(from.kind), " ", from.index, " -> ", static_cast<int>(to.kind), " ",
                to.index);
    return false;
  }
  Duration taken = world_.Between(Micros(20), most_);
  if (world_.OneIn(50)) {
    taken *= 10;
  }
  Instant arrival = world_.now() + taken + fault.later;
  if (!fault.overtaken) {
    Instant& last = last_[Direction(from, to)];
    last = std::max(last + Duration(1), arrival);
    arrival = last;
  }
  if (fault.again.has_value()) {
    world_.At(arrival + *fault.again, deliver);
  }
  world_.At(arrival, std::move(deliver));
  return true;
}

}  // namespace refit::sim

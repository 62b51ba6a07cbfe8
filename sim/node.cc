// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0

#include "sim/node.h"

#include <algorithm>
#include <utility>

#include "sim/world.h"

namespace refit::sim {

void Node::Run(std::function<void()> what) {
  if (!alive_) {
    return;
  }
  if (frozen_) {
    held_.push_back(std::move(what));
    return;
  }
  what();
  Rearm();
}

void Node::Kill() {
  if (!alive_) {
    return;
  }
  alive_ = false;
  frozen_ = false;
  held_.clear();
  OnKilled();
}

void Node::Freeze() { frozen_ = alive_; }

void Node::Thaw() {
  if (!frozen_) {
    return;
  }
  frozen_ = false;
  std::deque<std::function<void()>> held;
  held.swap(held_);
  for (std::function<void()>& what : held) {
    Run(std::move(what));
  }
  Rearm();
}

void Node::Rearm() {
  if (!alive_ || frozen_) {
    return;
  }
  const Instant next = next_deadline();
  if (next < armed_) {
    armed_ = std::max(next, world_.now());
    world_.At(armed_, [this] { OnTimer(); });
  }
}

void Node::OnTimer() {
  if (!alive_ || frozen_) {
    armed_ = kNever;
    return;
  }
  if (world_.now() < armed_) {
    return;  // an earlier arming that was replaced
  }
  armed_ = kNever;
  if (next_deadline() <= world_.now()) {
    OnDeadline();
  }
  Rearm();
}

}  // namespace refit::sim

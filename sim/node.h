// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0
//
// One life of a process: what reaches it runs at once, waits while it is frozen, and is lost when it is dead.

#pragma once

#include <deque>
#include <functional>

#include "refit/base/time.h"
#include "sim/plan.h"

namespace refit::sim {

class World;

class Node {
 public:
  Node(World& world, Process id) : world_(world), id_(id) {}
  Node(const Node&) = delete;
  Node& operator=(const Node&) = delete;
  virtual ~Node() = default;

  Process id() const { return id_; }
  bool alive() const { return alive_; }
  bool frozen() const { return frozen_; }
  // A message or a completion.
  void Run(std::function<void()> what);
  void Kill();
  void Freeze();
  void Thaw();  // what came meanwhile runs now, in order

 protected:
  World& world() const { return world_; }
  virtual Instant next_deadline() const { return kNever; }
  virtual void OnDeadline() {}
  virtual void OnKilled() {}
  void Rearm();  // after anything that may have moved next_deadline()

 private:
  void OnTimer();

  World& world_;
  const Process id_;
  bool alive_ = true;
  bool frozen_ = false;
  std::deque<std::function<void()>> held_;
  Instant armed_ = kNever;
};

}  // namespace refit::sim

// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0
//
// The router, and the requests that come through it. It knows nothing of terms or versions: who writes to it is
// believed. Every entry's address belongs to one life alone.

#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "refit/fleet/router_registry.h"
#include "sim/engine.h"

namespace refit::sim {

class ControllerProcess;

class Router {
 public:
  struct Entry {
    fleet::RouterEntry entry;
    Term writer;        // 0: somebody else
    bool late = false;  // its writer was superseded by then (settled C9's residual)
  };
  using OnAnswer = std::function<void(const Status&, const std::vector<fleet::RouterEntry>&)>;

  explicit Router(World& world);

  void Serve(ControllerProcess& from, const fleet::RouterAction& action, const OnAnswer& answer);
  void Forget();
  void AddForeign();
  const std::vector<Entry>& entries() const { return entries_; }
  // Who gets the requests for that entry; null: nobody.
  Engine* Listener(const Entry& entry) const;

 private:
  World& world_;
  std::vector<Entry> entries_;
  std::uint64_t next_id_ = 1;
};

// Somebody who asks for tokens all the time.
class Traffic {
 public:
  explicit Traffic(World& world) : world_(world) {}
  void Start() { Next(); }
  void Stop() { stopped_ = true; }

 private:
  void Next();
  void Ask();

  World& world_;
  bool stopped_ = false;
};

}  // namespace refit::sim

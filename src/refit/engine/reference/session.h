// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0
//
// What an engine remembers between control calls, and what each session family answers (docs/spec/sglang-wire.md §0.2,
// §1.2–1.4, §1.7; RC-TEST-02): the weight-update session, whether the scheduler is stopped, which memory is released.
// Pure: no threads, no HTTP. Guarded by whoever owns it.

#pragma once

#include <cstddef>
#include <cstdint>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "refit/sync/engine_call.h"

namespace refit::engine::reference {

enum class ReplyKind : std::uint8_t {
  kOk,
  kRefused,  // 400
  kDeath,    // an exception in the scheduler: the whole server ends
};
struct Reply {
  ReplyKind kind = ReplyKind::kOk;
  std::string message;

  friend bool operator==(const Reply&, const Reply&) = default;
};

// Modes of /pause_generation. An abort pause only closes the gate: there is just nothing left to run.
enum class PauseMode : std::uint8_t { kAbort, kRetract, kInPlace };

struct Occupancy {
  std::size_t running = 0;
  std::size_t waiting = 0;  // queued, retracted ones included
};

class Session {
 public:
  explicit Session(sync::SessionFamily family) : family_(family) {}

  sync::SessionFamily family() const { return family_; }
  bool open() const { return open_; }

  // Family A has no such routes: never called there.
  Reply Begin();
  Reply End();
  // Whether an update may run now.
  Reply CheckUpdate() const;
  // An update with flush_cache:true, after it was installed.
  Reply FlushAfterUpdate(Occupancy occupancy) const;

  void Pause(PauseMode mode);
  void Continue() { stopped_ = false; }
  bool scheduler_stopped() const { return stopped_; }

  enum class FlushKind : std::uint8_t { kAtOnce, kWaiting };  // timeout = 0, > 0
  bool CanFlush(Occupancy occupancy, FlushKind kind) const;

  // Tags: "kv_cache", "weights", "cuda_graph"; none means all three.
  Reply Release(const std::vector<std::string>& tags, Occupancy occupancy);
  Reply Resume(const std::vector<std::string>& tags);
  bool released(std::string_view tag) const { return released_.contains(tag); }

 private:
  bool Idle(Occupancy occupancy) const;  // as release and an update's flush see it

  const sync::SessionFamily family_;
  bool open_ = false;
  bool stopped_ = false;  // retract or in_place
  std::set<std::string, std::less<>> released_;
};

}  // namespace refit::engine::reference

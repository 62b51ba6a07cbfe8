// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0
//
// The locks of SGLang's tokenizer process (docs/spec/sglang-wire.md §1.0): the pause condition, which a paused update
// holds while it runs, and the reader/writer lock of weights, whose readers are the generation requests in flight.
// Requests that come while the gate is closed are held, not refused.

#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <list>
#include <mutex>
#include <string>
#include <string_view>

#include "refit/base/time.h"

namespace refit::engine::reference {

// Thread: any.
class Gate {
 public:
  enum class Admission : std::uint8_t { kAdmitted, kAborted, kStopped };

  // Waits until generation is open. kAborted: somebody aborted this request while it was held. An admitted one must
  // Leave().
  Admission Enter(const std::string& rid);
  void Leave();
  bool TryEnter();  // for the health probe, which waits on its own terms

  // Closes the gate. Then tells the scheduler; an abort pause does so again every `poll` until no request is in
  // flight.
  enum class Drain : std::uint8_t { kNo, kAbort };
  void Pause(Drain drain, Duration poll, const std::function<void()>& tell_scheduler);
  void Continue(const std::function<void()>& resume);
  bool paused() const;
  std::size_t held_count() const;  // requests that wait to enter

  // Marks held requests whose id starts with the prefix: they are refused once the gate opens.
  void AbortHeld(std::string_view rid_prefix);

  // Runs `update` as a weight update runs: paused, under the pause condition; otherwise as the writer, after the
  // requests in flight and before new ones. The look at the pause happens once. Not run when the gate was stopped.
  void RunUpdate(const std::function<void()>& update);

  void Stop();  // wakes everybody for good

 private:
  struct Held {
    std::string rid;
    bool aborted = false;
  };
  bool open() const { return !paused_ && !condition_held_ && !writing_ && writers_waiting_ == 0; }
  void TakeCondition(std::unique_lock<std::mutex>& lock);

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::list<Held> held_;
  bool paused_ = false;
  bool condition_held_ = false;
  bool writing_ = false;
  bool stopped_ = false;
  std::size_t readers_ = 0;
  std::size_t writers_waiting_ = 0;
};

}  // namespace refit::engine::reference

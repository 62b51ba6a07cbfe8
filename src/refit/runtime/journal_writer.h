// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0
//
// The controller's store on a thread of its own: a medium that hangs holds up no loop. Bounded: a record that finds the
// queue full counts as a failed append, which is ambiguous and ends the controller (RX-TIME-04, RX-JRNL-03).

#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <string>

#include "refit/base/ids.h"
#include "refit/base/status.h"
#include "refit/control/controller.h"
#include "refit/control/history.h"
#include "refit/exec/lane.h"
#include "refit/store/store.h"

namespace refit::runtime {

// Thread: any. `post` is called on the writer's thread.
class JournalWriter {
 public:
  JournalWriter(std::unique_ptr<store::Store> store, Term term, std::function<void(control::ControllerEvent)> post);
  ~JournalWriter();  // lets go of the term's holder: a successor need not wait

  void Announce(const std::string& address);  // where this controller serves
  // Answered by Appended, or by TermChecked where the term is not ours any more.
  void Append(const control::Append& append);
  void CheckTerm();  // answered by TermChecked, where the file could be read
  // Of a journal that nobody else can open: one in memory.
  Result<control::History> ReadHistory(Duration deadline);

 private:
  void Post(std::function<void()> task, const std::function<void(const Status&)>& refused);
  void TellTerm();

  const std::unique_ptr<store::Store> store_;  // the lane's
  const Term term_;
  const std::function<void(control::ControllerEvent)> post_;
  bool answers_ = true;  // the lane's: the medium did, the last time
  std::atomic<bool> checking_ = false;
  std::atomic<bool> over_ = false;
  exec::Lane lane_;
};

}  // namespace refit::runtime

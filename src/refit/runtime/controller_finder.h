// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0
//
// Where the controller is: at a fixed address, or where the state directory says that the holder of the term serves, so
// that its successors are found as well (settled C11).

#pragma once

#include <string>

#include "refit/base/ids.h"
#include "refit/base/status.h"
#include "refit/rpc/controller_rpc.h"

namespace refit::runtime {

struct ControllerPlace {
  std::string address;            // wins over what the state directory says
  std::string state_directory{};  // empty: none
};

struct FoundController {
  std::string address;
  Term term;  // that the authority says is current; 0: there is none to ask
};

// NOT_FOUND: no controller has begun there. UNAVAILABLE: none serves just now.
Result<FoundController> FindController(const ControllerPlace& place);

// Asks the controller for a sync, and its successor for the same one where it was lost meanwhile: whoever answers tells
// of one and the same sync (RX-ONCE-01). Ends by the request's budget.
Result<rpc::SyncReport> SyncWithSuccessors(const ControllerPlace& place, rpc::SyncRequest request,
                                           const rpc::ProgressSink& progress);

}  // namespace refit::runtime

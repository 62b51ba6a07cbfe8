// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0
//
// How a controller comes to act: it reads who held the term before it, makes sure that this process is gone, and takes
// the next term in one transaction (settled C11, RX-LEAD-05). Two controllers are thereby unlikely; what makes them
// harmless are the terms that every resource compares.

#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <string>

#include "refit/base/ids.h"
#include "refit/base/status.h"
#include "refit/base/time.h"
#include "refit/control/journal.h"
#include "refit/store/store.h"

namespace refit::runtime {

struct TakeoverOptions {
  std::string state_directory;  // empty: in memory, for a run that nobody succeeds
  // How long a holder that lives may take to end by itself, before it is killed.
  Duration takeover_after = std::chrono::seconds(1);
};

struct Reign {
  std::unique_ptr<store::Store> store;
  Term term;
  RunId run;
  std::optional<control::JournalState> recovered;  // nothing: the run begins
};

// A journal that does not replay is DATA_LOSS, and nobody is killed for it (RX-JRNL-02).
Result<Reign> TakeOver(const TakeoverOptions& options);

// This process, for the store.
store::Holder ThisHolder();
// OK once that process is known to have ended, by itself within `patience` or killed. Never by its pid alone.
Status EndHolder(const store::Holder& holder, Duration patience);

}  // namespace refit::runtime

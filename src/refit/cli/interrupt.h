// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0
//
// SIGINT, SIGTERM and SIGHUP. A handler and a pipe rather than sigwait: signals that are blocked stay blocked in every
// child, and a command must end at once while it is still starting.

#pragma once

#include "refit/cli/output.h"

namespace refit::cli {

enum class OnInterrupt {
  kExit,          // at once, with 130: the command owns nothing that the kernel does not take back
  kExitWithJson,  // the same, with an error object on standard output
  kStop,          // remember it, wake WaitForInterrupt; the second one exits at once
};

void SetOnInterrupt(OnInterrupt what);
inline OnInterrupt ExitIn(Form form) { return form == Form::kJson ? OnInterrupt::kExitWithJson : OnInterrupt::kExit; }

bool Interrupted();       // only after SetOnInterrupt(kStop)
void WaitForInterrupt();  // the same

}  // namespace refit::cli

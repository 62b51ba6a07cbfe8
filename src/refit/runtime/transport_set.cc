// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0

#include "refit/runtime/transport_set.h"

namespace refit::runtime {

Result<transport::Transport*> TransportSet::Get(const std::string& name) {
  if (name == shm_.name()) {
    return &shm_;
  }
  const std::lock_guard lock(mutex_);
  auto& transport = others_[name];
  if (transport == nullptr) {
    REFIT_ASSIGN_OR_RETURN(transport, transport::MakeTransport(name, options_));
  }
  return transport.get();
}

}  // namespace refit::runtime

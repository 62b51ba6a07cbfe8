// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0

#include "refit/transport/factory.h"

#include <string>
#include <utility>

#include "refit/base/str.h"
#include "refit/transport/cuda_ipc/cuda_ipc_transport.h"
#include "refit/transport/loopback/loopback_transport.h"
#include "refit/transport/nixl/nixl_transport.h"
#include "refit/transport/shm/shm_transport.h"

namespace refit::transport {
namespace {

constexpr std::string_view kRemedy = "this build has: auto, shm, cuda_ipc, nixl, loopback";

// Two loopback transports of one process must meet without knowing each other, like two processes of one host.
LoopbackHub& ProcessHub() {
  static LoopbackHub hub;
  return hub;
}

}  // namespace

Result<std::unique_ptr<Transport>> MakeTransport(std::string_view name, const TransportOptions& options) {
  if (name == "auto" || name == "shm") {
    return std::unique_ptr<Transport>(std::make_unique<ShmTransport>());
  }
  if (name == "loopback") {
    return std::unique_ptr<Transport>(std::make_unique<LoopbackTransport>(ProcessHub()));
  }
  if (name == "nixl") {
    REFIT_ASSIGN_OR_RETURN(std::unique_ptr<NixlTransport> nixl, NixlTransport::Create(options.nixl));
    return std::unique_ptr<Transport>(std::move(nixl));
  }
  if (name == "cuda_ipc") {
    REFIT_ASSIGN_OR_RETURN(std::unique_ptr<CudaIpcTransport> cuda_ipc, CudaIpcTransport::Create());
    return std::unique_ptr<Transport>(std::move(cuda_ipc));
  }
  if (name == "ucx") {
    return Unimplemented(StrCat("transport '", name, "' is not in this build"), std::string(kRemedy));
  }
  return InvalidArgument(StrCat("unknown transport '", name, "'"), std::string(kRemedy));
}

}  // namespace refit::transport

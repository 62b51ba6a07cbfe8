// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0
//
// NIXL's C library, found and loaded at run time. The wheel has no header: these are our own declarations of what we
// call, in the form of version 1.5.1. Once loaded it stays for the process's life (its plug-ins never unload).

#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "refit/base/status.h"

namespace refit::transport {

using NixlHandle = void*;
using NixlStatus = int;

inline constexpr NixlStatus kNixlDone = 0;
inline constexpr NixlStatus kNixlInProgress = 1;
inline constexpr NixlStatus kNixlBackend = -2;   // a disconnect, a cancelled or a mismatched transfer: folded into one
inline constexpr NixlStatus kNixlNotFound = -6;  // of a request: NIXL may have deleted it already
std::string NixlStatusName(NixlStatus status);

inline constexpr int kNixlDram = 0;
inline constexpr int kNixlVram = 1;
inline constexpr int kNixlRead = 0;

// nixl_capi_agent_config_t.
struct NixlAgentConfig {
  bool progress_thread = false;
  bool listen_thread = false;
  std::uint16_t listen_port = 0;
  int thread_sync = 0;  // none: calls are ours to serialise
  unsigned int workers = 1;
  std::uint64_t progress_delay_us = 0;
  std::uint64_t listen_delay_us = 100'000;
  bool telemetry = false;
};

// Every function by its name without "nixl_capi_".
#define REFIT_NIXL_FUNCTIONS(X)                                                                                     \
  X(is_stub, bool (*)())                                                                                            \
  X(create_configured_agent, NixlStatus (*)(const char*, const NixlAgentConfig*, NixlHandle*))                      \
  X(destroy_agent, NixlStatus (*)(NixlHandle))                                                                      \
  X(create_params, NixlStatus (*)(NixlHandle*))                                                                     \
  X(params_add, NixlStatus (*)(NixlHandle, const char*, const char*))                                               \
  X(destroy_params, NixlStatus (*)(NixlHandle))                                                                     \
  X(create_backend, NixlStatus (*)(NixlHandle, const char*, NixlHandle, NixlHandle*))                               \
  X(destroy_backend, NixlStatus (*)(NixlHandle))                                                                    \
  X(create_opt_args, NixlStatus (*)(NixlHandle*))                                                                   \
  X(opt_args_add_backend, NixlStatus (*)(NixlHandle, NixlHandle))                                                   \
  X(destroy_opt_args, NixlStatus (*)(NixlHandle))                                                                   \
  X(create_reg_dlist, NixlStatus (*)(int, NixlHandle*))                                                             \
  X(reg_dlist_add_desc,                                                                                             \
    NixlStatus (*)(NixlHandle, std::uintptr_t, std::size_t, std::uint64_t, const void*, std::size_t))               \
  X(destroy_reg_dlist, NixlStatus (*)(NixlHandle))                                                                  \
  X(register_mem, NixlStatus (*)(NixlHandle, NixlHandle, NixlHandle))                                               \
  X(deregister_mem, NixlStatus (*)(NixlHandle, NixlHandle, NixlHandle))                                             \
  X(get_local_md, NixlStatus (*)(NixlHandle, void**, std::size_t*))                                                 \
  X(load_remote_md, NixlStatus (*)(NixlHandle, const void*, std::size_t, char**))                                   \
  X(invalidate_remote_md, NixlStatus (*)(NixlHandle, const char*))                                                  \
  X(agent_make_connection, NixlStatus (*)(NixlHandle, const char*, NixlHandle))                                     \
  X(create_xfer_dlist, NixlStatus (*)(int, NixlHandle*))                                                            \
  X(xfer_dlist_add_desc, NixlStatus (*)(NixlHandle, std::uintptr_t, std::size_t, std::uint64_t))                    \
  X(destroy_xfer_dlist, NixlStatus (*)(NixlHandle))                                                                 \
  X(create_xfer_req, NixlStatus (*)(NixlHandle, int, NixlHandle, NixlHandle, const char*, NixlHandle*, NixlHandle)) \
  X(post_xfer_req, NixlStatus (*)(NixlHandle, NixlHandle, NixlHandle))                                              \
  X(get_xfer_status, NixlStatus (*)(NixlHandle, NixlHandle))                                                        \
  X(release_xfer_req, NixlStatus (*)(NixlHandle, NixlHandle))                                                       \
  X(destroy_xfer_req, NixlStatus (*)(NixlHandle))                                                                   \
  X(create_notif_map, NixlStatus (*)(NixlHandle*))                                                                  \
  X(notif_map_clear, NixlStatus (*)(NixlHandle))                                                                    \
  X(destroy_notif_map, NixlStatus (*)(NixlHandle))                                                                  \
  X(get_notifs, NixlStatus (*)(NixlHandle, NixlHandle, NixlHandle))

struct NixlFunctions {
  template <typename Function>
  using Pointer = Function;
#define REFIT_NIXL_MEMBER(name, type) Pointer<type> name = nullptr;
  REFIT_NIXL_FUNCTIONS(REFIT_NIXL_MEMBER)
#undef REFIT_NIXL_MEMBER
  void (*free_buffer)(void*) = nullptr;  // nixl_capi_mem_free where the library has it, else free
};

// Where the library is, before it is loaded: for `refit doctor` and for messages.
struct NixlPlace {
  std::string path;     // of libnixl_capi.so
  std::string version;  // of the wheel, by the name of its .dist-info folder; empty where there is none
};

// library: as in NixlOptions. FAILED_PRECONDITION names the wheel and the key where it is missing, and refuses wheels
// of another major version.
Result<NixlPlace> FindNixl(const std::string& library);

struct NixlLibrary {
  NixlPlace place;
  NixlFunctions call;
};

// Loads it, or gives the one that is loaded. Refuses stubs and libraries that lack a function, naming it. Thread: any.
Result<const NixlLibrary*> LoadNixl(const std::string& library);

}  // namespace refit::transport

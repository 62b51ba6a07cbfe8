// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0
//
// A library with NIXL's C functions and no NIXL: what tests play its faults with. FAKE_NIXL_WITHOUT_GET_NOTIFS leaves
// one out, FAKE_NIXL_BEFORE_1_0 has what only older ones have.

#include "tests/support/fake_nixl.h"

#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <cstring>

#include "refit/transport/nixl/nixl_library.h"

using refit::test::FakeNixl;
using refit::transport::kNixlDone;
using refit::transport::kNixlInProgress;
using refit::transport::kNixlNotFound;
using refit::transport::NixlAgentConfig;
using refit::transport::NixlHandle;
using refit::transport::NixlStatus;

extern "C" FakeNixl fake_nixl;
FakeNixl fake_nixl;

namespace {

struct Agent {
  std::string name;
};

struct Stretch {
  std::uintptr_t address = 0;
  std::size_t size = 0;
};

enum class Life { kCreated, kRunning, kEnded, kGone };

struct Request {
  Stretch local;
  Stretch remote;
  std::size_t asked = 0;
  Life life = Life::kCreated;
};

std::vector<Request*>& Requests() {
  static std::vector<Request*> all;  // never freed, so that a test sees who touches one that is gone
  return all;
}

Request& Touch(NixlHandle handle) {
  auto* const request = static_cast<Request*>(handle);
  fake_nixl.has_touched_a_gone_request = fake_nixl.has_touched_a_gone_request || request->life == Life::kGone;
  return *request;
}

NixlStatus MakeStretch(NixlHandle* list) {
  *list = new Stretch;
  return kNixlDone;
}

NixlStatus FreeStretch(NixlHandle list) {
  delete static_cast<Stretch*>(list);
  return kNixlDone;
}

NixlStatus MakeNothing(NixlHandle* handle) {
  *handle = &fake_nixl;
  return kNixlDone;
}

}  // namespace

extern "C" {

bool nixl_capi_is_stub() { return fake_nixl.is_stub; }

NixlStatus nixl_capi_create_configured_agent(const char* name, const NixlAgentConfig* /*config*/, NixlHandle* agent) {
  *agent = new Agent{name};
  ++fake_nixl.agents;
  return kNixlDone;
}
NixlStatus nixl_capi_destroy_agent(NixlHandle agent) {
  delete static_cast<Agent*>(agent);
  --fake_nixl.agents;
  return kNixlDone;
}

NixlStatus nixl_capi_create_params(NixlHandle* params) {
  fake_nixl.params.clear();
  return MakeNothing(params);
}
NixlStatus nixl_capi_params_add(NixlHandle /*params*/, const char* key, const char* value) {
  fake_nixl.params[key] = value;
  return kNixlDone;
}
NixlStatus nixl_capi_destroy_params(NixlHandle /*params*/) { return kNixlDone; }
NixlStatus nixl_capi_create_backend(NixlHandle /*agent*/, const char* /*name*/, NixlHandle /*params*/,
                                    NixlHandle* backend) {
  return fake_nixl.create_backend == kNixlDone ? MakeNothing(backend) : fake_nixl.create_backend;
}
NixlStatus nixl_capi_destroy_backend(NixlHandle /*backend*/) { return kNixlDone; }
NixlStatus nixl_capi_create_opt_args(NixlHandle* arguments) { return MakeNothing(arguments); }
NixlStatus nixl_capi_opt_args_add_backend(NixlHandle /*arguments*/, NixlHandle /*backend*/) { return kNixlDone; }
NixlStatus nixl_capi_destroy_opt_args(NixlHandle /*arguments*/) { return kNixlDone; }

NixlStatus nixl_capi_create_reg_dlist(int /*kind*/, NixlHandle* list) { return MakeStretch(list); }
NixlStatus nixl_capi_reg_dlist_add_desc(NixlHandle list, std::uintptr_t address, std::size_t size,
                                        std::uint64_t /*device*/, const void* /*meta*/, std::size_t /*meta_size*/) {
  *static_cast<Stretch*>(list) = {address, size};
  return kNixlDone;
}
NixlStatus nixl_capi_destroy_reg_dlist(NixlHandle list) { return FreeStretch(list); }
NixlStatus nixl_capi_register_mem(NixlHandle /*agent*/, NixlHandle /*list*/, NixlHandle /*arguments*/) {
  ++fake_nixl.registered;
  return fake_nixl.register_mem;
}
NixlStatus nixl_capi_deregister_mem(NixlHandle /*agent*/, NixlHandle list, NixlHandle /*arguments*/) {
  const auto& memory = *static_cast<Stretch*>(list);
  for (const Request* request : Requests()) {
    const bool inside = request->local.address >= memory.address &&
                        request->local.address + request->local.size <= memory.address + memory.size;
    if (request->life == Life::kRunning && inside) {
      fake_nixl.has_deregistered_under_a_request = true;
    }
  }
  fake_nixl.calls.emplace_back("deregister");
  return kNixlDone;
}

NixlStatus nixl_capi_get_local_md(NixlHandle agent, void** data, std::size_t* size) {
  const std::string& name = static_cast<Agent*>(agent)->name;
  *size = name.size();
  *data = std::malloc(name.size());
  std::memcpy(*data, name.data(), name.size());
  return kNixlDone;
}
// The metadata of a fake agent is its name, and whatever a test appends after a '+'.
NixlStatus nixl_capi_load_remote_md(NixlHandle /*agent*/, const void* data, std::size_t size, char** name) {
  fake_nixl.calls.emplace_back("load");
  if (fake_nixl.load != kNixlDone) {
    return fake_nixl.load;
  }
  const std::string metadata(static_cast<const char*>(data), size);
  *name = strdup(fake_nixl.loaded_name.empty() ? metadata.substr(0, metadata.find('+')).c_str()
                                               : fake_nixl.loaded_name.c_str());
  return kNixlDone;
}
NixlStatus nixl_capi_invalidate_remote_md(NixlHandle /*agent*/, const char* /*name*/) {
  fake_nixl.calls.emplace_back("invalidate");
  return kNixlDone;
}
NixlStatus nixl_capi_agent_make_connection(NixlHandle /*agent*/, const char* /*name*/, NixlHandle /*arguments*/) {
  return fake_nixl.make_connection;
}

NixlStatus nixl_capi_create_xfer_dlist(int /*kind*/, NixlHandle* list) { return MakeStretch(list); }
NixlStatus nixl_capi_xfer_dlist_add_desc(NixlHandle list, std::uintptr_t address, std::size_t size,
                                         std::uint64_t /*device*/) {
  *static_cast<Stretch*>(list) = {address, size};
  return kNixlDone;
}
NixlStatus nixl_capi_destroy_xfer_dlist(NixlHandle list) { return FreeStretch(list); }
NixlStatus nixl_capi_create_xfer_req(NixlHandle /*agent*/, int /*operation*/, NixlHandle local, NixlHandle remote,
                                     const char* /*peer*/, NixlHandle* request, NixlHandle /*arguments*/) {
  if (fake_nixl.create_request != kNixlDone) {
    return fake_nixl.create_request;
  }
  Requests().push_back(new Request{*static_cast<Stretch*>(local), *static_cast<Stretch*>(remote)});
  *request = Requests().back();
  return kNixlDone;
}
NixlStatus nixl_capi_post_xfer_req(NixlHandle /*agent*/, NixlHandle request, NixlHandle /*arguments*/) {
  Touch(request).life = fake_nixl.post < 0 ? Life::kEnded : Life::kRunning;
  return fake_nixl.post < 0 ? fake_nixl.post : kNixlInProgress;
}
NixlStatus nixl_capi_get_xfer_status(NixlHandle /*agent*/, NixlHandle handle) {
  Request& request = Touch(handle);
  const std::size_t ask = request.asked++;
  const NixlStatus status = ask < fake_nixl.statuses.size() ? fake_nixl.statuses[ask] : kNixlDone;
  if (status == kNixlDone) {
    std::memcpy(reinterpret_cast<void*>(request.local.address), reinterpret_cast<const void*>(request.remote.address),
                request.local.size);
  }
  if (status != kNixlInProgress) {
    request.life = status == kNixlNotFound ? Life::kGone : Life::kEnded;
  }
  return status;
}
NixlStatus nixl_capi_release_xfer_req(NixlHandle /*agent*/, NixlHandle handle) {
  Request& request = Touch(handle);
  fake_nixl.has_released_a_running_request = fake_nixl.has_released_a_running_request || request.life == Life::kRunning;
  fake_nixl.calls.emplace_back("release");
  return kNixlDone;
}
NixlStatus nixl_capi_destroy_xfer_req(NixlHandle handle) {
  Touch(handle).life = Life::kGone;
  return kNixlDone;
}

NixlStatus nixl_capi_create_notif_map(NixlHandle* map) { return MakeNothing(map); }
NixlStatus nixl_capi_notif_map_clear(NixlHandle /*map*/) { return kNixlDone; }
NixlStatus nixl_capi_destroy_notif_map(NixlHandle /*map*/) { return kNixlDone; }
#ifndef FAKE_NIXL_WITHOUT_GET_NOTIFS
NixlStatus nixl_capi_get_notifs(NixlHandle /*agent*/, NixlHandle /*map*/, NixlHandle /*arguments*/) {
  ++std::atomic_ref(fake_nixl.rounds);
  return kNixlDone;
}
#endif
#ifdef FAKE_NIXL_BEFORE_1_0
NixlStatus nixl_capi_xfer_dlist_is_sorted(NixlHandle /*list*/, bool* /*is_sorted*/) { return kNixlDone; }
#endif

}  // extern "C"

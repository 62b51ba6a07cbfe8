// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0
//
// One agent of NIXL: its registrations, its peers, its requests. NIXL is told not to lock, so every call is made under
// one mutex, from whatever thread. Nothing of NIXL's can be cancelled, and a request that is released while it runs may
// still write (nixl #2067); hence:
//
//  - a request keeps its handle and the registration of its landing memory until NIXL says how it ended;
//  - one that failed keeps them for some rounds of progress more, since its parts end one after the other;
//  - one that NIXL no longer knows is never touched again, since NIXL may have deleted it;
//  - an agent with a request that has not ended is never destroyed.

#pragma once

#include <cstddef>
#include <cstdint>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "refit/base/status.h"
#include "refit/base/time.h"
#include "refit/device/memory.h"
#include "refit/transport/nixl/nixl_address.h"
#include "refit/transport/nixl/nixl_library.h"
#include "refit/transport/nixl/nixl_options.h"

namespace refit::transport {

// RC-ENV-01, RC-ENV-04: what cannot work with these options, before NIXL fails with a number.
Status CheckNixlOptions(const NixlOptions& options);

class NixlAgent {
 public:
  using RequestId = std::uint64_t;
  using RegistrationId = std::uint64_t;

  static Result<std::unique_ptr<NixlAgent>> Create(const NixlOptions& options);
  ~NixlAgent();
  NixlAgent(const NixlAgent&) = delete;
  NixlAgent& operator=(const NixlAgent&) = delete;

  const std::string& name() const { return name_; }  // fresh per life, never used again (RC-BIND-06, RX-ASM-T5)

  // Registers memory, unless a registration covers it already; each Register needs its Unregister. An unregistered
  // one stays while requests use it.
  Result<RegistrationId> Register(const device::Memory& memory);
  void Unregister(RegistrationId registration);
  // What peers need in order to reach this agent and everything that is registered now.
  Result<std::string> LocalMetadata();

  // Loads the peer's metadata, unless it is loaded and its connection has not failed: then nothing moves (RC-BIND-04).
  // Otherwise what was loaded under that name goes first (RC-BIND-03), once no request uses it any more.
  Status Connect(const NixlAddress& peer, Instant deadline);
  // How often Connect loaded metadata.
  std::uint64_t connections() const;

  // Starts reading peer memory. UNAVAILABLE: the connection has failed, bind again.
  Result<RequestId> Read(const std::string& peer, const NixlMemory& from, const device::Memory& into);
  // Nothing while it runs. Once it has said how the request ended, the number is forgotten.
  std::optional<Status> Check(RequestId request);
  // Nobody will ask again: the agent keeps what the request needs until it has ended.
  void Forget(RequestId request);

  // One round of what NIXL has no thread for: answering peers' reads over TCP, ending requests. True when it moved
  // much.
  bool Progress();
  // Rounds until nothing is left of requests that failed: from then on they write nothing.
  void Settle();

 private:
  struct Registration {
    device::Memory memory;
    NixlHandle list = nullptr;
    std::size_t uses = 0;
  };
  struct Peer {
    std::string metadata;
    bool failed = false;
  };
  struct Request {
    std::string peer;
    NixlHandle handle = nullptr;
    RegistrationId registration = 0;
    std::optional<Status> ended = {};  // handle and registration are no longer its own then
    bool forgotten = false;
  };
  struct Cooling {
    NixlHandle handle = nullptr;
    RegistrationId registration = 0;
    int rounds = 0;
  };

  NixlAgent(const NixlLibrary& library, std::string name);
  Status Open(const NixlOptions& options);

  // All of these need mutex_.
  Result<RegistrationId> RegisterLocked(const device::Memory& memory);
  void UnregisterLocked(RegistrationId registration);
  Result<NixlHandle> CreateRead(const std::string& peer, const NixlMemory& from, const NixlMemory& into);
  void RefreshLocked(Request& request);
  void EndLocked(Request& request, NixlStatus status);
  void ReleaseLocked(NixlHandle handle, RegistrationId registration);
  bool IsReadingFrom(const std::string& peer);
  Status LoadLocked(const NixlAddress& peer);
  bool ProgressLocked();
  Status Probe(const NixlAddress& peer, Instant deadline);  // not this one

  const NixlLibrary& library_;
  const NixlFunctions& nixl_;
  const std::string name_;
  NixlHandle agent_ = nullptr;
  NixlHandle backend_ = nullptr;
  NixlHandle arguments_ = nullptr;      // "this back end"
  NixlHandle notifications_ = nullptr;  // where get_notifs puts what nobody here sends

  std::mutex connect_mutex_;  // one Connect at a time; taken before mutex_
  mutable std::mutex mutex_;
  std::map<RegistrationId, Registration> registrations_;
  std::map<std::string, Peer, std::less<>> peers_;
  std::map<RequestId, Request> requests_;  // whose end nobody has asked for
  std::vector<Cooling> cooling_;           // failed, with parts that may still end
  std::list<std::byte> probes_;            // one byte per connect that has not ended: memory that is never used again
  std::uint64_t next_id_ = 1;
  std::uint64_t connections_ = 0;
};

}  // namespace refit::transport

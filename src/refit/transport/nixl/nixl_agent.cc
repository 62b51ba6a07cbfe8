// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0

#include "refit/transport/nixl/nixl_agent.h"

#include <algorithm>
#include <array>
#include <iterator>
#include <string_view>
#include <utility>

#include "refit/base/mutant.h"
#include "refit/base/str.h"
#include "refit/exec/clock.h"
#include "refit/exec/random.h"

namespace refit::transport {
namespace {

// A failed request is several of UCX's, which end one after the other: seen to within some hundred rounds.
constexpr int kCoolingRounds = 1000;
constexpr Duration kMuch = std::chrono::microseconds(20);  // an empty round takes 1

Status NixlError(std::string_view what, NixlStatus status, std::string remedy = {}) {
  return Internal(StrCat("NIXL cannot ", what, ": ", NixlStatusName(status)), std::move(remedy));
}

// One list of one stretch for one call, gone with its scope.
class TransferList {
 public:
  TransferList(const NixlFunctions& nixl, const NixlMemory& memory) : nixl_(nixl) {
    status_ = nixl_.create_xfer_dlist(memory.kind, &list_);
    if (status_ == kNixlDone) {
      status_ = nixl_.xfer_dlist_add_desc(list_, memory.address, memory.size, memory.gpu);
    }
  }
  ~TransferList() {
    if (list_ != nullptr) {
      nixl_.destroy_xfer_dlist(list_);
    }
  }
  TransferList(const TransferList&) = delete;
  TransferList& operator=(const TransferList&) = delete;
  NixlStatus status() const { return status_; }
  NixlHandle list() const { return list_; }

 private:
  const NixlFunctions& nixl_;
  NixlHandle list_ = nullptr;
  NixlStatus status_ = kNixlDone;
};

// Segments of 64 KiB triple TCP's rate; a peer that died idle is noticed within two seconds instead of twenty.
std::string EngineConfig(const std::map<std::string, std::string>& params) {
  static constexpr std::array<std::string_view, 3> kDefaults = {"TCP_TX_SEG_SIZE=64k", "TCP_RX_SEG_SIZE=64k",
                                                                "KEEPALIVE_INTERVAL=1s"};
  const auto given = params.find("engine_config");
  std::string config = given == params.end() ? std::string() : given->second;
  for (const std::string_view setting : kDefaults) {
    if (config.find(setting.substr(0, setting.find('=') + 1)) == std::string::npos) {
      config += StrCat(config.empty() ? "" : ",", setting);
    }
  }
  return config;
}

bool Covers(const device::Memory& outer, const device::Memory& inner) {
  const auto begin = reinterpret_cast<std::uintptr_t>(outer.bytes.data());
  const auto at = reinterpret_cast<std::uintptr_t>(inner.bytes.data());
  return outer.gpu == inner.gpu && begin <= at && inner.size() <= outer.size() &&
         at - begin <= outer.size() - inner.size();
}

std::string_view NextWord(std::string_view& list) {
  const std::string_view word = list.substr(0, list.find(','));
  list.remove_prefix(std::min(list.size(), word.size() + 1));
  return word;
}

// "TLS=cma,tcp" of an engine_config runs on to its next "KEY=": UCX's own values have commas as well.
std::string TlsOf(std::string_view config) {
  std::string tls;
  bool inside = false;
  while (!config.empty()) {
    std::string_view word = NextWord(config);
    const std::size_t equals = word.find('=');
    if (equals != std::string_view::npos) {
      inside = word.substr(0, equals) == "TLS";
      word.remove_prefix(equals + 1);
    }
    if (inside) {
      tls += StrCat(tls.empty() ? "" : ",", word);
    }
  }
  return tls;
}

// RC-ENV-01: transports of one host alone. A list that begins with '^' names what is not taken.
Status CheckTls(std::string_view where, std::string_view list) {
  static constexpr std::array<std::string_view, 14> kLocal = {"self",      "sm",       "shm",      "mm",    "posix",
                                                              "sysv",      "cma",      "knem",     "xpmem", "cuda",
                                                              "cuda_copy", "cuda_ipc", "gdr_copy", "gga"};
  const bool excludes = list.starts_with('^');
  std::string_view rest = list.substr(excludes ? 1 : 0);
  bool has_network = list.empty() || excludes;
  while (!rest.empty()) {
    std::string_view word = NextWord(rest);
    word.remove_prefix(word.starts_with('\\') ? 1 : 0);  // "\cma": without its helpers
    if (excludes) {
      has_network = has_network && word != "tcp";  // the one that every host has
    } else {
      has_network = has_network || std::find(kLocal.begin(), kLocal.end(), word) == kLocal.end();
    }
  }
  if (!has_network) {
    return FailedPrecondition(StrCat(where, " is ", list, ": NIXL needs a network transport even within one host"),
                              "add tcp to the list");
  }
  return OkStatus();
}

}  // namespace

Status CheckNixlOptions(const NixlOptions& options) {
  if (options.backend_name != "UCX") {
    return OkStatus();
  }
  REFIT_RETURN_IF_ERROR(CheckTls("UCX_TLS of the environment", options.ucx_tls));
  const auto config = options.backend_params.find("engine_config");
  if (config != options.backend_params.end()) {
    REFIT_RETURN_IF_ERROR(CheckTls("TLS in engine_config", TlsOf(config->second)));
  }
  const auto mode = options.backend_params.find("ucx_error_handling_mode");
  if (mode != options.backend_params.end() && mode->second != "peer") {
    return FailedPrecondition(
        StrCat("ucx_error_handling_mode is ", mode->second, ": a dead peer would leave its transfers pending for ever"),
        "leave it out, or give peer");
  }
  return OkStatus();
}

NixlAgent::NixlAgent(const NixlLibrary& library, std::string name)
    : library_(library), nixl_(library.call), name_(std::move(name)) {}

Result<std::unique_ptr<NixlAgent>> NixlAgent::Create(const NixlOptions& options) {
  REFIT_RETURN_IF_ERROR(CheckNixlOptions(options));
  REFIT_ASSIGN_OR_RETURN(const NixlLibrary* const library, LoadNixl(options.library));
  std::unique_ptr<NixlAgent> agent(new NixlAgent(*library, StrCat("refit-", ToHex(exec::RandomId()))));
  REFIT_RETURN_IF_ERROR(agent->Open(options));
  return agent;
}

Status NixlAgent::Open(const NixlOptions& options) {
  const NixlAgentConfig config;
  if (const NixlStatus status = nixl_.create_configured_agent(name_.c_str(), &config, &agent_); status != kNixlDone) {
    agent_ = nullptr;
    return NixlError("create an agent", status);
  }
  NixlHandle params = nullptr;
  NixlStatus status = nixl_.create_params(&params);
  for (const auto& [key, value] : options.backend_params) {
    if (status == kNixlDone && (key != "engine_config" || options.backend_name != "UCX")) {
      status = nixl_.params_add(params, key.c_str(), value.c_str());
    }
  }
  if (status == kNixlDone && options.backend_name == "UCX") {
    status = nixl_.params_add(params, "engine_config", EngineConfig(options.backend_params).c_str());
  }
  if (status == kNixlDone) {
    status = nixl_.create_backend(agent_, options.backend_name.c_str(), params, &backend_);
  }
  if (params != nullptr) {
    nixl_.destroy_params(params);
  }
  if (status != kNixlDone) {
    backend_ = nullptr;
    return FailedPrecondition(
        StrCat("NIXL cannot create its back end ", options.backend_name, ": ", NixlStatusName(status)),
        "its own lines on stderr say why; for UCX see UCX_TLS and UCX_NET_DEVICES, and docs/nixl.md");
  }
  if (nixl_.create_opt_args(&arguments_) != kNixlDone ||
      nixl_.opt_args_add_backend(arguments_, backend_) != kNixlDone ||
      nixl_.create_notif_map(&notifications_) != kNixlDone) {
    return Internal("NIXL cannot create its argument objects");
  }
  return OkStatus();
}

// The order of transport teardown: requests, endpoints, memory, agent. Leak rather than crash.
NixlAgent::~NixlAgent() {
  for (auto& [id, request] : requests_) {
    request.forgotten = true;
  }
  for (int round = 0; round < kCoolingRounds && !requests_.empty(); ++round) {
    ProgressLocked();
  }
  Settle();
  if (!requests_.empty()) {
    new std::list<std::byte>(std::move(probes_));  // NOLINT: what runs may still write there
    return;
  }
  for (const auto& [name, peer] : peers_) {
    nixl_.invalidate_remote_md(agent_, name.c_str());
  }
  ProgressLocked();
  while (!registrations_.empty()) {
    registrations_.begin()->second.uses = 1;
    UnregisterLocked(registrations_.begin()->first);
  }
  if (notifications_ != nullptr) {
    nixl_.destroy_notif_map(notifications_);
  }
  if (arguments_ != nullptr) {
    nixl_.destroy_opt_args(arguments_);
  }
  if (backend_ != nullptr) {
    nixl_.destroy_backend(backend_);
  }
  if (agent_ != nullptr) {
    nixl_.destroy_agent(agent_);
  }
}

Result<NixlAgent::RegistrationId> NixlAgent::Register(const device::Memory& memory) {
  const std::lock_guard lock(mutex_);
  return RegisterLocked(memory);
}

Result<NixlAgent::RegistrationId> NixlAgent::RegisterLocked(const device::Memory& memory) {
  for (auto& [id, registration] : registrations_) {
    if (Covers(registration.memory, memory)) {
      ++registration.uses;
      return id;
    }
  }
  const NixlMemory named = NameMemory(memory);
  Registration registration{memory, nullptr, 1};
  NixlStatus status = nixl_.create_reg_dlist(named.kind, &registration.list);
  if (status == kNixlDone) {
    status = nixl_.reg_dlist_add_desc(registration.list, named.address, named.size, named.gpu, nullptr, 0);
  }
  if (status == kNixlDone) {
    status = nixl_.register_mem(agent_, registration.list, arguments_);
  }
  if (status != kNixlDone) {
    if (registration.list != nullptr) {
      nixl_.destroy_reg_dlist(registration.list);
    }
    const std::string where = memory.gpu.has_value() ? StrCat("GPU ", *memory.gpu) : std::string("the host");
    return InvalidArgument(
        StrCat("NIXL cannot register ", memory.size(), " bytes of ", where, ": ", NixlStatusName(status)),
        memory.gpu.has_value() ? "its UCX needs libcuda.so.1 and libnvidia-ml.so.1, and cuda in UCX_TLS" : "");
  }
  return registrations_.emplace(next_id_++, std::move(registration)).first->first;
}

void NixlAgent::Unregister(RegistrationId registration) {
  const std::lock_guard lock(mutex_);
  UnregisterLocked(registration);
}

void NixlAgent::UnregisterLocked(RegistrationId registration) {
  const auto found = registrations_.find(registration);
  if (found == registrations_.end() || --found->second.uses > 0) {
    return;
  }
  nixl_.deregister_mem(agent_, found->second.list, arguments_);
  nixl_.destroy_reg_dlist(found->second.list);
  registrations_.erase(found);
}

Result<std::string> NixlAgent::LocalMetadata() {
  const std::lock_guard lock(mutex_);
  void* data = nullptr;
  std::size_t size = 0;
  if (const NixlStatus status = nixl_.get_local_md(agent_, &data, &size); status != kNixlDone) {
    return NixlError("say its metadata", status);
  }
  std::string metadata(static_cast<const char*>(data), size);
  nixl_.free_buffer(data);
  return metadata;
}

bool NixlAgent::IsReadingFrom(const std::string& peer) {
  bool is_reading = false;
  for (auto& [id, request] : requests_) {
    if (request.peer == peer) {
      RefreshLocked(request);
      is_reading = is_reading || !request.ended.has_value();
    }
  }
  return is_reading;
}

Status NixlAgent::LoadLocked(const NixlAddress& peer) {
  if (peers_.erase(peer.agent) > 0 && REFIT_MUTANT("RC-BIND-03/add-a-peer-over-itself", true, false)) {
    nixl_.invalidate_remote_md(agent_, peer.agent.c_str());  // of a dead or unknown one: fine as well
    ProgressLocked();
  }
  char* loaded = nullptr;
  const NixlStatus status = nixl_.load_remote_md(agent_, peer.metadata.data(), peer.metadata.size(), &loaded);
  if (status != kNixlDone) {
    return Unavailable(StrCat("NIXL cannot load the metadata of ", peer.agent, ": ", NixlStatusName(status)),
                       "the peer has ended, cannot be reached by any common transport, or runs another NIXL");
  }
  const std::string name = loaded == nullptr ? std::string() : loaded;
  nixl_.free_buffer(loaded);
  if (name != peer.agent) {
    nixl_.invalidate_remote_md(agent_, name.c_str());
    peers_.erase(name);
    return InvalidArgument("the metadata in the address is of another agent than the address says");
  }
  peers_[peer.agent] = {peer.metadata, false};
  ++connections_;
  return OkStatus();
}

Status NixlAgent::Connect(const NixlAddress& peer, Instant deadline) {
  if (peer.agent == name_) {
    return InvalidArgument("the address is this end's own");
  }
  const std::lock_guard one_at_a_time(connect_mutex_);
  const auto is_free = [&] {
    const std::lock_guard lock(mutex_);
    ProgressLocked();
    return !IsReadingFrom(peer.agent);
  };
  {
    const std::lock_guard lock(mutex_);
    const auto known = peers_.find(peer.agent);
    const bool same = known != peers_.end() && !known->second.failed && known->second.metadata == peer.metadata;
    if (REFIT_MUTANT("RC-BIND-04/load-an-unchanged-peer-again", same, false)) {
      return OkStatus();
    }
  }
  if (!exec::WaitUntil(is_free, deadline)) {
    return Unavailable(StrCat("reads from ", peer.agent, " have not ended, and NIXL cannot cancel them"),
                       "the peer hangs, or has gone: it must come back as a new agent");
  }
  {
    const std::lock_guard lock(mutex_);
    REFIT_RETURN_IF_ERROR(LoadLocked(peer));
    if (const NixlStatus status = nixl_.agent_make_connection(agent_, peer.agent.c_str(), arguments_);
        status != kNixlDone) {
      peers_[peer.agent].failed = true;
      return Unavailable(StrCat("NIXL cannot connect to ", peer.agent, ": ", NixlStatusName(status)));
    }
  }
  return Probe(peer, deadline);
}

// Metadata of a dead peer loads, and so does a connection. One byte of what it exports says more.
Status NixlAgent::Probe(const NixlAddress& peer, Instant deadline) {
  const auto first = std::find_if(peer.exports.begin(), peer.exports.end(),
                                  [](const auto& entry) { return entry.second.kind == kNixlDram; });
  if (first == peer.exports.end()) {
    return OkStatus();
  }
  std::list<std::byte>::iterator target;
  {
    const std::lock_guard lock(mutex_);
    target = probes_.emplace(probes_.end());
  }
  const Result<RequestId> read =
      Read(peer.agent, {first->second.address, 1}, device::Memory(MutableBytes(&*target, 1)));
  std::optional<Status> ended = read.ok() ? std::optional<Status>() : read.status();
  if (read.ok()) {
    exec::WaitUntil([&] { return (ended = Check(*read)).has_value(); }, deadline);
  }
  const std::lock_guard lock(mutex_);
  if (!ended.has_value()) {
    requests_.at(*read).forgotten = true;
    ended = Unavailable(StrCat("the peer ", peer.agent, " took the connection but answers no read"),
                        "it hangs, or a firewall drops what it sends");
  } else if (ended->ok()) {
    probes_.erase(target);
    return OkStatus();
  }
  peers_[peer.agent].failed = true;
  return *ended;
}

std::uint64_t NixlAgent::connections() const {
  const std::lock_guard lock(mutex_);
  return connections_;
}

Result<NixlHandle> NixlAgent::CreateRead(const std::string& peer, const NixlMemory& from, const NixlMemory& into) {
  const TransferList local(nixl_, into);
  const TransferList remote(nixl_, from);
  NixlStatus status = local.status() != kNixlDone ? local.status() : remote.status();
  NixlHandle handle = nullptr;
  if (status == kNixlDone) {
    status = nixl_.create_xfer_req(agent_, kNixlRead, local.list(), remote.list(), peer.c_str(), &handle, arguments_);
  }
  if (status != kNixlDone) {
    peers_[peer].failed = true;  // NIXL itself drops a peer whose connection broke
    return Unavailable(StrCat("NIXL cannot prepare a read from ", peer, ": ", NixlStatusName(status)),
                       "the peer withdrew that memory or its connection failed: bind again");
  }
  return handle;
}

Result<NixlAgent::RequestId> NixlAgent::Read(const std::string& peer, const NixlMemory& from,
                                             const device::Memory& into) {
  const std::lock_guard lock(mutex_);
  const auto known = peers_.find(peer);
  // Posting on an endpoint that has failed has crashed UCX (ucx #11629).
  if (known == peers_.end() || known->second.failed) {
    return Unavailable(StrCat("the connection to ", peer, " has failed"), "bind again");
  }
  REFIT_ASSIGN_OR_RETURN(const RegistrationId registration, RegisterLocked(into));
  const Result<NixlHandle> handle = CreateRead(peer, from, NameMemory(into));
  if (!handle.ok()) {
    UnregisterLocked(registration);
    return handle.status();
  }
  Request request{peer, *handle, registration};
  if (const NixlStatus status = nixl_.post_xfer_req(agent_, *handle, nullptr); status < 0) {
    EndLocked(request, status);
  }
  const RequestId id = next_id_++;
  requests_.emplace(id, std::move(request));
  return id;
}

std::optional<Status> NixlAgent::Check(RequestId request) {
  const std::lock_guard lock(mutex_);
  const auto found = requests_.find(request);
  if (found == requests_.end()) {
    return NotFound(StrCat("no read ", request, " is running"));
  }
  RefreshLocked(found->second);
  std::optional<Status> ended = found->second.ended;
  if (ended.has_value()) {
    requests_.erase(found);
  }
  return ended;
}

void NixlAgent::RefreshLocked(Request& request) {
  if (request.ended.has_value()) {
    return;
  }
  const NixlStatus status = nixl_.get_xfer_status(agent_, request.handle);
  if (status != kNixlInProgress) {
    EndLocked(request, status);
  }
}

void NixlAgent::EndLocked(Request& request, NixlStatus status) {
  if (status == kNixlDone) {
    request.ended = OkStatus();
    ReleaseLocked(request.handle, request.registration);
    return;
  }
  const auto peer = peers_.find(request.peer);
  if (peer != peers_.end()) {
    peer->second.failed = true;
  }
  request.ended = Unavailable(StrCat("a read from ", request.peer, " failed: ", NixlStatusName(status)),
                              "the peer has gone or its connection broke: bind again");
  cooling_.push_back(
      {REFIT_MUTANT("RX-ASM-T2/touch-a-forgotten-request", status == kNixlNotFound, false) ? nullptr : request.handle,
       request.registration, kCoolingRounds});
}

void NixlAgent::ReleaseLocked(NixlHandle handle, RegistrationId registration) {
  if (handle != nullptr) {
    nixl_.release_xfer_req(agent_, handle);
    nixl_.destroy_xfer_req(handle);
  }
  UnregisterLocked(registration);
}

void NixlAgent::Forget(RequestId request) {
  const std::lock_guard lock(mutex_);
  const auto found = requests_.find(request);
  if (found != requests_.end()) {
    found->second.forgotten = true;
  }
}

bool NixlAgent::Progress() {
  const std::lock_guard lock(mutex_);
  return ProgressLocked();
}

void NixlAgent::Settle() {
  const std::lock_guard lock(mutex_);
  while (!cooling_.empty()) {
    ProgressLocked();
  }
}

bool NixlAgent::ProgressLocked() {
  if (notifications_ == nullptr) {
    return false;  // there was never a back end
  }
  const Instant start = exec::Now();
  nixl_.get_notifs(agent_, notifications_, arguments_);
  nixl_.notif_map_clear(notifications_);
  const bool moved = exec::Now() - start > kMuch;
  for (auto it = requests_.begin(); it != requests_.end();) {
    if (it->second.forgotten) {
      RefreshLocked(it->second);
    }
    it = it->second.forgotten && it->second.ended.has_value() ? requests_.erase(it) : std::next(it);
  }
  for (Cooling& cooling : cooling_) {
    if (--cooling.rounds <= 0) {
      ReleaseLocked(cooling.handle, cooling.registration);
    }
  }
  std::erase_if(cooling_, [](const Cooling& cooling) { return cooling.rounds <= 0; });
  return moved;
}

}  // namespace refit::transport

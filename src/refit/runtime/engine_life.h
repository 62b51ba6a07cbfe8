// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0
//
// One incarnation of an engine: the process (or the attached server), its adapter, its peer::EngineAgent and the
// threads that carry the machine's effects out. Ends with the incarnation; a new one gets a new object (RC-LIFE-04).

#pragma once

#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "refit/base/ids.h"
#include "refit/base/status.h"
#include "refit/base/time.h"
#include "refit/engine/engine.h"
#include "refit/engine/sglang/sglang_engine.h"
#include "refit/exec/lane.h"
#include "refit/exec/mailbox.h"
#include "refit/exec/watched.h"
#include "refit/peer/engine_agent.h"
#include "refit/rpc/controller_rpc.h"
#include "refit/runtime/agent_host.h"
#include "refit/runtime/engine_process.h"
#include "refit/runtime/link_proof.h"
#include "refit/runtime/load_receiver.h"
#include "refit/runtime/receiver_memory.h"
#include "refit/runtime/transport_set.h"

namespace refit::runtime {

class EngineLife {
 public:
  // Launches the process, or attaches where there is none; waits until it answers, and reads who it is.
  static Result<std::unique_ptr<EngineLife>> Begin(const AgentHostOptions& options,
                                                   std::shared_ptr<EngineProcess> process, TransportSet& transports);
  ~EngineLife();
  EngineLife(const EngineLife&) = delete;
  EngineLife& operator=(const EngineLife&) = delete;

  Incarnation incarnation() const { return incarnation_; }
  const engine::EngineDescription& description() const { return description_; }
  const std::string& url() const { return reached_.url; }
  int pid() const { return process_ == nullptr ? 0 : process_->pid(); }  // 0: attached, not ours
  ByteCount bytes_delivered() const { return delivered_; }

  // Runs the machine until the incarnation ends or Stop(). Says why it ended. Thread: the receiver loop.
  Status Run(const rpc::Membership& membership, const std::function<void(sync::AgentReply)>& reply);
  // A command for the machine; RESOURCE_EXHAUSTED or CANCELLED where it cannot take one. Thread: any.
  Status Post(peer::EngineAgentEvent event) { return mailbox_.Push(std::move(event)); }
  void Stop() { mailbox_.Close(); }
  bool died_in_update() const { return died_in_update_; }  // once Run has returned
  // Kills the process, if it is ours; whether its whole tree is gone. Thread: any
  bool End(Instant deadline) { return process_ != nullptr && process_->Kill(deadline); }
  Result<std::vector<engine::RankHashes>> Checksums();        // Thread: any
  Status Probe(Duration deadline);                            // Thread: any
  Result<std::uint64_t> RequestsInFlight(Duration deadline);  // Thread: any

 private:
  EngineLife(const AgentHostOptions& options, std::shared_ptr<EngineProcess> process, TransportSet& transports);
  Status Identify();
  Status Ended(const std::string& exit_text) const;
  peer::EngineAgentOptions MachineOptions() const;  // what is known before the controller is
  Result<peer::EngineAgent> MakeMachine(const rpc::Membership& membership) const;

  sync::Answer Call(const peer::CallEngine& effect);  // Thread: the caller lane
  void Carry(const peer::CallEngine& effect);
  void Carry(const peer::PostUpdate& effect);
  void Carry(const peer::OpenLink& effect);
  void Carry(const peer::CloseLink& effect);
  void Carry(peer::StartTransfer& effect);
  void Carry(const peer::StopTransfer& effect);
  void Carry(const peer::SendReply& effect);
  void Carry(const peer::KillEngine& effect);

  const AgentHostOptions& options_;               // the host's
  const std::shared_ptr<EngineProcess> process_;  // null: attached. Shared with rpc threads that end it
  const Incarnation incarnation_;
  engine::sglang::SglangOptions reached_;
  std::unique_ptr<engine::Engine> engine_;  // control calls and updates: the caller lane
  std::unique_ptr<engine::Engine> reader_;  // checksums: rpc threads, beside a call
  engine::EngineDescription description_;
  sync::Profile profile_{};
  const std::function<void(sync::AgentReply)>* reply_ = nullptr;
  bool died_in_update_ = false;
  std::optional<Status> ended_;
  std::atomic<ByteCount> delivered_ = 0;
  exec::Watched<int> probes_;  // in flight
  exec::Mailbox<peer::EngineAgentEvent> mailbox_;
  TransportSet& transports_;
  std::unique_ptr<ReceiverMemory> memory_;
  std::map<LinkId, std::shared_ptr<LinkProof>> links_;  // shared with the binder's tasks
  std::optional<exec::Lane> binder_;                    // opens and closes links, one after another
  std::unique_ptr<LoadReceiver> receiver_;
  std::optional<exec::Lane> caller_;  // destroyed before receiver_ and engine_, which its tasks use
};

}  // namespace refit::runtime

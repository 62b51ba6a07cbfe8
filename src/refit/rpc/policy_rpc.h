// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0
//
// The policy worker's service and its client.

#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "refit/base/status.h"
#include "refit/base/time.h"
#include "refit/rpc/agent_rpc.h"
#include "refit/rpc/load_stream.h"
#include "refit/sync/command.h"
#include "refit/weights/rank_hashes.h"

namespace refit::rpc {

// Thread: rpc threads.
class PolicyHandler {
 public:
  virtual ~PolicyHandler() = default;
  virtual sync::PolicyReply Execute(const sync::PolicyCommand& command) = 0;
  // What each rank of an engine must hold, hashed as it hashes, from `source` (empty: what is leased).
  virtual Result<std::vector<weights::RankHashes>> ExpectedHashes(const std::string& source,
                                                                  weights::Hashing hashing) = 0;
  // Sends one attempt's loads to one receiver; returns when the stream is to end.
  virtual void Serve(const OpenStream& open, SenderStream& stream) = 0;
};

Result<std::unique_ptr<Server>> ServePolicy(const std::string& listen, PolicyHandler& handler);

class PolicyClient {
 public:
  static std::unique_ptr<PolicyClient> Connect(const std::string& address);
  virtual ~PolicyClient() = default;  // cancels calls in flight and waits for their done()

  // The connection that was there is broken: whoever dies is noticed between two calls as well. Asked for the first
  // time it begins to connect.
  virtual bool ConnectionLost() = 0;

  using Done = std::function<void(Result<sync::PolicyReply>)>;
  virtual void Execute(const sync::PolicyCommand& command, Duration deadline, Done done) = 0;
  virtual Result<std::vector<weights::RankHashes>> ExpectedHashes(const std::string& source, weights::Hashing hashing,
                                                                  Duration deadline) = 0;
};

}  // namespace refit::rpc

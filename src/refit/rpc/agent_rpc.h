// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0
//
// The agent's service and its client.

#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "refit/base/ids.h"
#include "refit/base/status.h"
#include "refit/base/time.h"
#include "refit/sync/command.h"
#include "refit/weights/rank_hashes.h"

namespace refit::rpc {

// What the controller wants done with the engine itself. kDrain: wait until it answers no request.
enum class ErrandKind : std::uint8_t { kLaunch, kShutDown, kKill, kProbe, kDrain };
std::string_view ToString(ErrandKind kind);
struct EngineErrand {
  RunId run;
  Term term;
  ErrandKind kind = ErrandKind::kProbe;
  Incarnation incarnation;  // zero: whatever is being launched
  Duration budget{};
};
struct ErrandReply {
  Status status;
  bool gone = false;  // kill, shut down: the whole tree of its processes is reaped
  Term highest_term;  // accepted
};

// What an agent's host does for its callers. Thread: rpc threads; must answer within the command's budget.
class AgentHandler {
 public:
  virtual ~AgentHandler() = default;
  virtual sync::AgentReply Execute(const sync::AgentCommand& command) = 0;
  virtual ErrandReply Run(const EngineErrand& errand) = 0;
  virtual Result<std::vector<weights::RankHashes>> Checksums(Incarnation incarnation) = 0;
  virtual ByteCount bytes_delivered() const = 0;
};

class Server {
 public:
  virtual ~Server() = default;                     // stops, ending calls in flight
  virtual const std::string& address() const = 0;  // "127.0.0.1:41234"
};

// Listens on `listen` ("127.0.0.1:0": any free port).
Result<std::unique_ptr<Server>> ServeAgent(const std::string& listen, AgentHandler& handler);

// Whether that address refuses connections, as one does whose process is gone. A host that does not answer may live.
// Thread: any; ends by the deadline.
bool NobodyListens(const std::string& address, Duration deadline);

class AgentClient {
 public:
  static std::unique_ptr<AgentClient> Connect(const std::string& address);
  virtual ~AgentClient() = default;  // cancels calls in flight and waits for their done()
  virtual const std::string& address() const = 0;

  // done is called exactly once, on an rpc thread.
  using Done = std::function<void(Result<sync::AgentReply>)>;
  virtual void Execute(const sync::AgentCommand& command, Duration deadline, Done done) = 0;
  using ErrandDone = std::function<void(Result<ErrandReply>)>;
  virtual void Run(const EngineErrand& errand, Duration deadline, ErrandDone done) = 0;
  virtual Result<std::vector<weights::RankHashes>> Checksums(Incarnation incarnation, Duration deadline) = 0;
  virtual Result<ByteCount> BytesDelivered(Duration deadline) = 0;
};

}  // namespace refit::rpc

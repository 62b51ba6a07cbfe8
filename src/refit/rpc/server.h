// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0
//
// What every service and client of ours shares: listening, channels, contexts with deadlines. Private to rpc/.

#pragma once

#include <grpcpp/grpcpp.h>

#include <condition_variable>
#include <memory>
#include <mutex>
#include <set>
#include <string>

#include "refit/base/status.h"
#include "refit/base/time.h"
#include "refit/rpc/agent_rpc.h"

namespace refit::rpc {

// Starts `service` on `listen`; the error names the address. The result owns the service.
Result<std::unique_ptr<Server>> StartServer(const std::string& listen, std::unique_ptr<grpc::Service> service);

// Loopback or cluster addresses: no proxy, messages up to kMaxMessageSize, quick reconnects.
std::shared_ptr<grpc::Channel> MakeChannel(const std::string& address);

void SetDeadline(grpc::ClientContext& context, Duration deadline);

// A gRPC status as ours. `whom` names the peer and its address.
Status FromGrpc(const grpc::Status& status, std::string_view whom);
grpc::Status ToGrpc(const Status& status);

// Calls in flight of one client: cancelled and waited for when the client goes.
class CallsInFlight {
 public:
  void Add(grpc::ClientContext* context);
  void Remove(grpc::ClientContext* context);
  void CancelAndWait();

 private:
  std::mutex mutex_;
  std::condition_variable emptied_;
  std::set<grpc::ClientContext*> contexts_;
};

}  // namespace refit::rpc

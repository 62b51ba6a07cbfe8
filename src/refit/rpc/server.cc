// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0

#include "refit/rpc/server.h"

#include <grpc/support/log.h>

#include <chrono>
#include <mutex>
#include <utility>

#include "refit/base/str.h"
#include "refit/rpc/codec.h"

namespace refit::rpc {
namespace {

// A peer that is out of reach, or stopped, ends the calls to it after this time and as much again (RX-TIME-02).
constexpr int kKeepAliveMs = 5000;

// gRPC's own log says again, in many lines, what our Status says in one.
void SilenceGrpcLog() {
  static std::once_flag once;
  std::call_once(once, [] { gpr_set_log_function([](gpr_log_func_args*) {}); });
}

class GrpcServer : public Server {
 public:
  GrpcServer(std::unique_ptr<grpc::Service> service, std::unique_ptr<grpc::Server> server, std::string address)
      : service_(std::move(service)), server_(std::move(server)), address_(std::move(address)) {}
  ~GrpcServer() override {
    // Calls in flight are cancelled: their handlers answer to nobody, but they end before this returns.
    server_->Shutdown(std::chrono::system_clock::now());
    server_->Wait();
  }
  const std::string& address() const override { return address_; }

 private:
  std::unique_ptr<grpc::Service> service_;
  std::unique_ptr<grpc::Server> server_;
  std::string address_;
};

}  // namespace

Result<std::unique_ptr<Server>> StartServer(const std::string& listen, std::unique_ptr<grpc::Service> service) {
  SilenceGrpcLog();
  int port = 0;
  grpc::ServerBuilder builder;
  builder.AddListeningPort(listen, grpc::InsecureServerCredentials(), &port);
  builder.AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, 0);  // a port in use is an error, not a second listener
  builder.AddChannelArgument(GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS, kKeepAliveMs / 2);
  builder.SetMaxReceiveMessageSize(kMaxMessageSize);
  builder.RegisterService(service.get());
  std::unique_ptr<grpc::Server> server = builder.BuildAndStart();
  if (server == nullptr || port == 0) {
    return Unavailable(StrCat("cannot listen on ", listen), "give a free port, or port 0 for any");
  }
  std::string address = StrCat(listen.substr(0, listen.rfind(':')), ":", port);
  return std::unique_ptr<Server>(
      std::make_unique<GrpcServer>(std::move(service), std::move(server), std::move(address)));
}

std::shared_ptr<grpc::Channel> MakeChannel(const std::string& address) {
  SilenceGrpcLog();
  grpc::ChannelArguments arguments;
  arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  arguments.SetMaxReceiveMessageSize(kMaxMessageSize);
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIME_MS, kKeepAliveMs);
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, kKeepAliveMs);
  arguments.SetInt(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);  // without end: an answer may take long
  arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, 500);
  arguments.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, 50);
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);  // a dead peer's back-off is not inherited by its successor
  return grpc::CreateCustomChannel(address, grpc::InsecureChannelCredentials(), arguments);
}

void SetDeadline(grpc::ClientContext& context, Duration deadline) {
  context.set_deadline(std::chrono::system_clock::now() +
                       std::chrono::duration_cast<std::chrono::system_clock::duration>(deadline));
}

Status FromGrpc(const grpc::Status& status, std::string_view whom) {
  if (status.ok()) {
    return OkStatus();
  }
  return Status(static_cast<StatusCode>(status.error_code()), status.error_message()).WithContext(whom);
}
grpc::Status ToGrpc(const Status& status) { return {static_cast<grpc::StatusCode>(status.code()), status.message()}; }

void CallsInFlight::Add(grpc::ClientContext* context) {
  const std::lock_guard lock(mutex_);
  contexts_.insert(context);
}
void CallsInFlight::Remove(grpc::ClientContext* context) {
  const std::lock_guard lock(mutex_);
  contexts_.erase(context);
  emptied_.notify_all();
}
void CallsInFlight::CancelAndWait() {
  std::unique_lock lock(mutex_);
  for (grpc::ClientContext* context : contexts_) {
    context->TryCancel();
  }
  emptied_.wait(lock, [this] { return contexts_.empty(); });
}

}  // namespace refit::rpc

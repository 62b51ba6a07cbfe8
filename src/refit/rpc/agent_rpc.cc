// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0

#include "refit/rpc/agent_rpc.h"

#include <netdb.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <utility>

#include "refit/base/str.h"
#include "refit/rpc/codec.h"
#include "refit/rpc/unary_call.h"

namespace refit::rpc {
namespace {

class AgentService final : public v1::Agent::Service {
 public:
  explicit AgentService(AgentHandler& handler) : handler_(handler) {}

  grpc::Status Execute(grpc::ServerContext*, const v1::AgentCommand* request, v1::AgentReply* reply) override {
    const auto command = Decode(*request);
    if (!command.has_value()) {
      return ToGrpc(command.status());
    }
    Encode(handler_.Execute(*command), reply);
    return grpc::Status::OK;
  }

  grpc::Status Run(grpc::ServerContext*, const v1::EngineErrand* request, v1::ErrandReply* reply) override {
    const auto errand = Decode(*request);
    if (!errand.has_value()) {
      return ToGrpc(errand.status());
    }
    Encode(handler_.Run(*errand), reply);
    return grpc::Status::OK;
  }

  grpc::Status Checksums(grpc::ServerContext*, const v1::ChecksumsRequest* request,
                         v1::ChecksumsReply* reply) override {
    EncodeRanks(handler_.Checksums(DecodeId<Incarnation>(request->incarnation())), reply);
    return grpc::Status::OK;
  }

  grpc::Status Progress(grpc::ServerContext*, const v1::ProgressRequest*, v1::ProgressReply* reply) override {
    reply->set_bytes_delivered(handler_.bytes_delivered());
    return grpc::Status::OK;
  }

 private:
  AgentHandler& handler_;
};

class GrpcAgentClient final : public AgentClient {
 public:
  explicit GrpcAgentClient(const std::string& address)
      : address_(address), whom_(StrCat("agent at ", address)), stub_(v1::Agent::NewStub(MakeChannel(address))) {}
  ~GrpcAgentClient() override { calls_.CancelAndWait(); }
  const std::string& address() const override { return address_; }

  void Execute(const sync::AgentCommand& command, Duration deadline, Done done) override {
    v1::AgentCommand request;
    Encode(command, &request);
    StartUnaryCall<v1::AgentCommand, v1::AgentReply>(
        calls_, std::move(request), deadline,
        [this](grpc::ClientContext* context, const auto* sent, auto* received, auto callback) {
          stub_->async()->Execute(context, sent, received, std::move(callback));
        },
        [this, done = std::move(done)](const grpc::Status& status, const v1::AgentReply& reply) {
          done(status.ok() ? Decode(reply) : Result<sync::AgentReply>(FromGrpc(status, whom_)));
        });
  }

  void Run(const EngineErrand& errand, Duration deadline, ErrandDone done) override {
    v1::EngineErrand request;
    Encode(errand, &request);
    StartUnaryCall<v1::EngineErrand, v1::ErrandReply>(
        calls_, std::move(request), deadline,
        [this](grpc::ClientContext* context, const auto* sent, auto* received, auto callback) {
          stub_->async()->Run(context, sent, received, std::move(callback));
        },
        [this, done = std::move(done)](const grpc::Status& status, const v1::ErrandReply& reply) {
          done(status.ok() ? Decode(reply) : Result<ErrandReply>(FromGrpc(status, whom_)));
        });
  }

  Result<std::vector<weights::RankHashes>> Checksums(Incarnation incarnation, Duration deadline) override {
    grpc::ClientContext context;
    SetDeadline(context, deadline);
    v1::ChecksumsRequest request;
    Encode(incarnation, request.mutable_incarnation());
    v1::ChecksumsReply reply;
    REFIT_RETURN_IF_ERROR(FromGrpc(stub_->Checksums(&context, request, &reply), whom_));
    return DecodeRanks(reply);
  }

  Result<ByteCount> BytesDelivered(Duration deadline) override {
    grpc::ClientContext context;
    SetDeadline(context, deadline);
    v1::ProgressReply reply;
    REFIT_RETURN_IF_ERROR(FromGrpc(stub_->Progress(&context, v1::ProgressRequest(), &reply), whom_));
    return ByteCount{reply.bytes_delivered()};
  }

 private:
  const std::string address_;
  const std::string whom_;
  std::unique_ptr<v1::Agent::Stub> stub_;
  CallsInFlight calls_;
};

}  // namespace

std::string_view ToString(ErrandKind kind) {
  switch (kind) {
    case ErrandKind::kLaunch: return "launch";
    case ErrandKind::kShutDown: return "shut down";
    case ErrandKind::kKill: return "kill";
    case ErrandKind::kProbe: return "probe";
    case ErrandKind::kDrain: return "drain";
  }
  return "?";
}

bool NobodyListens(const std::string& address, Duration deadline) {
  const std::size_t colon = address.rfind(':');
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  if (colon == std::string::npos ||
      getaddrinfo(address.substr(0, colon).c_str(), address.substr(colon + 1).c_str(), &hints, &found) != 0) {
    return false;
  }
  bool refused = false;
  const int probe = socket(found->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  if (probe >= 0) {
    int error = connect(probe, found->ai_addr, found->ai_addrlen) == 0 ? 0 : errno;
    pollfd connected{.fd = probe, .events = POLLOUT, .revents = 0};
    const auto milliseconds = std::chrono::duration_cast<std::chrono::milliseconds>(deadline).count();
    if (error == EINPROGRESS && poll(&connected, 1, static_cast<int>(milliseconds)) == 1) {
      socklen_t size = sizeof error;
      getsockopt(probe, SOL_SOCKET, SO_ERROR, &error, &size);
    }
    refused = error == ECONNREFUSED;
    close(probe);
  }
  freeaddrinfo(found);
  return refused;
}

Result<std::unique_ptr<Server>> ServeAgent(const std::string& listen, AgentHandler& handler) {
  return StartServer(listen, std::make_unique<AgentService>(handler));
}

std::unique_ptr<AgentClient> AgentClient::Connect(const std::string& address) {
  return std::make_unique<GrpcAgentClient>(address);
}

}  // namespace refit::rpc

// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0

#include "refit/rpc/policy_rpc.h"

#include <atomic>
#include <thread>
#include <utility>

#include "refit/base/str.h"
#include "refit/exec/mailbox.h"
#include "refit/rpc/codec.h"
#include "refit/rpc/unary_call.h"

namespace refit::rpc {
namespace {

constexpr std::size_t kReleasesInFlight = 64;  // a receiver never owes more than its load slots

// The sender's end of a stream: a reader thread turns releases into mailbox values, so that waits have deadlines.
class GrpcSenderStream final : public SenderStream {
 public:
  using Wire = grpc::ServerReaderWriter<v1::FromSender, v1::FromReceiver>;
  GrpcSenderStream(Wire* wire, grpc::ServerContext* context)
      : wire_(wire), context_(context), releases_(kReleasesInFlight), reader_([this] { Read(); }) {}
  ~GrpcSenderStream() override {
    context_->TryCancel();  // ends the pending Read
    reader_.join();
  }

  Status Send(const SenderMessage& message) override {
    v1::FromSender encoded;
    Encode(message, &encoded);
    if (!wire_->Write(encoded)) {
      broken_ = true;
      return Unavailable("receiver closed its load stream");
    }
    return OkStatus();
  }
  std::optional<LoadRelease> NextRelease(Instant deadline) override { return releases_.Pop(deadline); }
  bool broken() const override { return broken_; }

 private:
  void Read() {
    v1::FromReceiver message;
    while (wire_->Read(&message)) {
      const auto& release = message.release();
      if (!releases_.Push({AttemptId::FromPacked(release.attempt()), LoadSeq(release.seq())}).ok()) {
        break;
      }
    }
    broken_ = true;
    releases_.Close();
  }

  Wire* wire_;
  grpc::ServerContext* context_;
  exec::Mailbox<LoadRelease> releases_;
  std::atomic<bool> broken_ = false;
  std::jthread reader_;
};

class PolicyService final : public v1::Policy::Service {
 public:
  explicit PolicyService(PolicyHandler& handler) : handler_(handler) {}

  grpc::Status Execute(grpc::ServerContext*, const v1::PolicyCommand* request, v1::PolicyReply* reply) override {
    const auto command = Decode(*request);
    if (!command.has_value()) {
      return ToGrpc(command.status());
    }
    Encode(handler_.Execute(*command), reply);
    return grpc::Status::OK;
  }

  grpc::Status ExpectedHashes(grpc::ServerContext*, const v1::ExpectedHashesRequest* request,
                              v1::ExpectedHashesReply* reply) override {
    const auto kind = DecodeHashKind(request->hash_kind());
    if (!kind.has_value()) {
      return ToGrpc(kind.status());
    }
    EncodeRanks(handler_.ExpectedHashes(request->source(), {request->tp_size(), *kind}), reply);
    return grpc::Status::OK;
  }

  grpc::Status Stream(grpc::ServerContext* context, GrpcSenderStream::Wire* wire) override {
    v1::FromReceiver first;
    if (!wire->Read(&first) || !first.has_open()) {
      return ToGrpc(InvalidArgument("a load stream must begin by opening it"));
    }
    const auto open = Decode(first.open());
    if (!open.has_value()) {
      return ToGrpc(open.status());
    }
    GrpcSenderStream stream(wire, context);
    handler_.Serve(*open, stream);
    return grpc::Status::OK;
  }

 private:
  PolicyHandler& handler_;
};

// Connections to policy workers, kept from one refit to the next: making one costs a millisecond or two, and streams
// are opened while engines are paused. One that failed is not used again, so nobody inherits a dead peer's back-off.
class StreamChannels {
 public:
  std::shared_ptr<grpc::Channel> To(const std::string& address) {
    const std::lock_guard lock(mutex_);
    std::erase_if(channels_, [](const auto& entry) {
      const grpc_connectivity_state state = entry.second->GetState(false);
      return state == GRPC_CHANNEL_TRANSIENT_FAILURE || state == GRPC_CHANNEL_SHUTDOWN;
    });
    if (channels_.size() >= kMaxChannels) {
      channels_.clear();  // of policy workers that are long gone; streams keep what they use
    }
    auto& channel = channels_[address];
    if (channel == nullptr) {
      channel = MakeChannel(address);
    }
    return channel;
  }

 private:
  static constexpr std::size_t kMaxChannels = 1024;

  std::mutex mutex_;  // streams of several engines in one process
  std::map<std::string, std::shared_ptr<grpc::Channel>> channels_;
};

StreamChannels& ProcessStreamChannels() {
  static StreamChannels channels;
  return channels;
}

class GrpcReceiverStream final : public ReceiverStream {
 public:
  GrpcReceiverStream(const std::string& address, Duration deadline)
      : whom_(StrCat("policy worker at ", address)), stub_(v1::Policy::NewStub(ProcessStreamChannels().To(address))) {
    SetDeadline(context_, deadline);
    wire_ = stub_->Stream(&context_);
  }
  ~GrpcReceiverStream() override {
    context_.TryCancel();
    v1::FromSender ignored;
    while (wire_->Read(&ignored)) {
    }
    static_cast<void>(wire_->Finish());
  }

  Status Begin(const OpenStream& open) {
    v1::FromReceiver message;
    Encode(open, message.mutable_open());
    return Write(message);
  }
  Result<SenderMessage> Next() override {
    v1::FromSender message;
    if (!wire_->Read(&message)) {
      return Broken();
    }
    return Decode(message);
  }
  Status Release(LoadRelease release) override {
    v1::FromReceiver message;
    message.mutable_release()->set_attempt(release.attempt.packed());
    message.mutable_release()->set_seq(release.seq.value());
    return Write(message);
  }
  void Cancel() override { context_.TryCancel(); }

 private:
  Status Write(const v1::FromReceiver& message) { return wire_->Write(message) ? OkStatus() : Broken(); }
  Status Broken() {
    return Unavailable(StrCat(whom_, " ended the load stream"), "see its log; sync again when it is back");
  }

  const std::string whom_;
  std::unique_ptr<v1::Policy::Stub> stub_;
  grpc::ClientContext context_;
  std::unique_ptr<grpc::ClientReaderWriter<v1::FromReceiver, v1::FromSender>> wire_;
};

class GrpcPolicyClient final : public PolicyClient {
 public:
  explicit GrpcPolicyClient(const std::string& address)
      : whom_(StrCat("policy worker at ", address)),
        channel_(MakeChannel(address)),
        stub_(v1::Policy::NewStub(channel_)) {}
  ~GrpcPolicyClient() override { calls_.CancelAndWait(); }

  bool ConnectionLost() override {
    const bool connected = channel_->GetState(/*try_to_connect=*/true) == GRPC_CHANNEL_READY;
    return connected_.exchange(connected) && !connected;
  }

  void Execute(const sync::PolicyCommand& command, Duration deadline, Done done) override {
    v1::PolicyCommand request;
    Encode(command, &request);
    StartUnaryCall<v1::PolicyCommand, v1::PolicyReply>(
        calls_, std::move(request), deadline,
        [this](grpc::ClientContext* context, const auto* sent, auto* received, auto callback) {
          stub_->async()->Execute(context, sent, received, std::move(callback));
        },
        [this, done = std::move(done)](const grpc::Status& status, const v1::PolicyReply& reply) {
          done(status.ok() ? Decode(reply) : Result<sync::PolicyReply>(FromGrpc(status, whom_)));
        });
  }

  Result<std::vector<weights::RankHashes>> ExpectedHashes(const std::string& source, weights::Hashing hashing,
                                                          Duration deadline) override {
    grpc::ClientContext context;
    SetDeadline(context, deadline);
    v1::ExpectedHashesRequest request;
    request.set_source(source);
    request.set_tp_size(hashing.tp_size);
    request.set_hash_kind(EncodeHashKind(hashing.kind));
    v1::ExpectedHashesReply reply;
    REFIT_RETURN_IF_ERROR(FromGrpc(stub_->ExpectedHashes(&context, request, &reply), whom_));
    return DecodeRanks(reply);
  }

 private:
  const std::string whom_;
  const std::shared_ptr<grpc::Channel> channel_;
  const std::unique_ptr<v1::Policy::Stub> stub_;
  std::atomic<bool> connected_ = false;  // when it was asked last
  CallsInFlight calls_;
};

}  // namespace

Result<std::unique_ptr<Server>> ServePolicy(const std::string& listen, PolicyHandler& handler) {
  return StartServer(listen, std::make_unique<PolicyService>(handler));
}

std::unique_ptr<PolicyClient> PolicyClient::Connect(const std::string& address) {
  return std::make_unique<GrpcPolicyClient>(address);
}

Result<std::unique_ptr<ReceiverStream>> ReceiverStream::Open(const std::string& address, const OpenStream& open,
                                                             Instant deadline) {
  auto stream = std::make_unique<GrpcReceiverStream>(address, deadline - exec::Now());
  REFIT_RETURN_IF_ERROR(stream->Begin(open));
  return std::unique_ptr<ReceiverStream>(std::move(stream));
}

}  // namespace refit::rpc

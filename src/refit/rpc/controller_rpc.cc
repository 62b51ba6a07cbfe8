// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0

#include "refit/rpc/controller_rpc.h"

#include <chrono>
#include <string_view>
#include <utility>

#include "refit/base/str.h"
#include "refit/rpc/codec.h"
#include "refit/rpc/server.h"

namespace refit::rpc {
namespace {

// A caller waits this much longer than the budget that the controller keeps, so that the controller's answer wins.
constexpr Duration kAnswerMargin = std::chrono::seconds(5);

Status CheckProtocol(std::string_view who, std::uint32_t theirs) {
  if (theirs != kControlProtocol) {
    return FailedPrecondition(StrCat(who, " speaks control protocol ", theirs, ", this end ", kControlProtocol),
                              "run one version of refit everywhere");
  }
  return OkStatus();
}

void EncodeMembership(const Result<Membership>& membership, v1::Registered* out) {
  Encode(membership.status(), out->mutable_status());
  if (membership.has_value()) {
    Encode(membership->run, out->mutable_run());
    out->set_term(membership->term.value());
    out->set_profile(membership->profile);
    out->set_launches_engines(membership->launches_engines);
    out->set_protocol(membership->protocol);
  }
}
Result<Membership> DecodeMembership(std::string_view whom, const v1::Registered& in) {
  REFIT_RETURN_IF_ERROR(Decode(in.status()));
  REFIT_RETURN_IF_ERROR(CheckProtocol(whom, in.protocol()));
  return Membership{DecodeId<RunId>(in.run()), Term(in.term()), in.profile(), in.launches_engines(), in.protocol()};
}

class ControllerService final : public v1::Controller::Service {
 public:
  explicit ControllerService(ControllerHandler& handler) : handler_(handler) {}

  grpc::Status RegisterAgent(grpc::ServerContext*, const v1::RegisterAgentRequest* request,
                             v1::Registered* reply) override {
    if (Status known = CheckProtocol(StrCat("the agent of engine ", request->slot()), request->protocol());
        !known.ok()) {
      EncodeMembership(std::move(known), reply);
      return grpc::Status::OK;
    }
    const auto hash_kind = DecodeHashKind(request->hash_kind());
    if (!hash_kind.has_value()) {
      return ToGrpc(hash_kind.status());
    }
    EncodeMembership(handler_.RegisterAgent({.slot = SlotIndex(request->slot()),
                                             .incarnation = DecodeId<Incarnation>(request->incarnation()),
                                             .address = request->address(),
                                             .engine_url = request->engine_url(),
                                             .engine_version = request->engine_version(),
                                             .family = request->family(),
                                             .tp_size = request->tp_size(),
                                             .hash_kind = *hash_kind,
                                             .engine_pid = request->engine_pid(),
                                             .attached = request->attached(),
                                             .protocol = request->protocol()}),
                     reply);
    return grpc::Status::OK;
  }
  grpc::Status RegisterPolicy(grpc::ServerContext*, const v1::RegisterPolicyRequest* request,
                              v1::Registered* reply) override {
    if (Status known = CheckProtocol(StrCat("policy rank ", request->rank()), request->protocol()); !known.ok()) {
      EncodeMembership(std::move(known), reply);
      return grpc::Status::OK;
    }
    EncodeMembership(
        handler_.RegisterPolicy({PolicyRank(request->rank()), DecodeId<Incarnation>(request->incarnation()),
                                 request->address(), request->source(), request->protocol()}),
        reply);
    return grpc::Status::OK;
  }
  grpc::Status AgentGone(grpc::ServerContext*, const v1::AgentGoneRequest* request, v1::Empty*) override {
    handler_.AgentGone({SlotIndex(request->slot()), DecodeId<Incarnation>(request->incarnation()),
                        Decode(request->status()), request->confirmed_dead(), request->died_in_update()});
    return grpc::Status::OK;
  }
  grpc::Status Sync(grpc::ServerContext*, const v1::SyncRequest* request,
                    grpc::ServerWriter<v1::SyncProgress>* writer) override {
    const SyncReport report = handler_.Sync({request->request_id(), request->source(), Duration(request->budget_ns())},
                                            [writer](const SyncProgress& progress) {
                                              v1::SyncProgress wire;
                                              wire.set_phase(progress.phase);
                                              wire.set_bytes_total(progress.bytes_total);
                                              wire.set_bytes_delivered(progress.bytes_delivered);
                                              writer->Write(wire);
                                            });
    v1::SyncProgress last;
    Encode(report, last.mutable_outcome());
    writer->Write(last);
    return grpc::Status::OK;
  }
  grpc::Status GetStatus(grpc::ServerContext*, const v1::StatusRequest*, v1::FleetStatus* reply) override {
    Encode(handler_.GetStatus(), reply);
    return grpc::Status::OK;
  }
  grpc::Status Verify(grpc::ServerContext*, const v1::VerifyRequest* request, v1::VerifyReport* reply) override {
    Encode(handler_.Verify({request->slot(), request->model(), Duration(request->budget_ns())}), reply);
    return grpc::Status::OK;
  }
  grpc::Status GetHistory(grpc::ServerContext*, const v1::HistoryRequest*, v1::HistoryReply* reply) override {
    Encode(handler_.GetHistory(), reply);
    return grpc::Status::OK;
  }
  grpc::Status ActOnSlot(grpc::ServerContext*, const v1::SlotRequest* request, v1::SlotReply* reply) override {
    const auto action = DecodeSlotAction(request->action());
    if (!action.has_value()) {
      return ToGrpc(action.status());
    }
    Encode(handler_.ActOnSlot(
               {*action, SlotIndex(request->slot()), Duration(request->grace_ns()), Duration(request->budget_ns())}),
           reply->mutable_status());
    return grpc::Status::OK;
  }
  grpc::Status Shutdown(grpc::ServerContext*, const v1::ShutdownRequest* request, v1::ShutdownReply* reply) override {
    Encode(handler_.Shutdown(Duration(request->budget_ns())), reply->mutable_status());
    return grpc::Status::OK;
  }

 private:
  ControllerHandler& handler_;
};

class GrpcControllerClient final : public ControllerClient {
 public:
  explicit GrpcControllerClient(const std::string& address)
      : whom_(StrCat("controller at ", address)), stub_(v1::Controller::NewStub(MakeChannel(address))) {}

  Result<Membership> RegisterAgent(const AgentRegistration& registration, Duration deadline) override {
    grpc::ClientContext context;
    SetDeadline(context, deadline);
    v1::RegisterAgentRequest request;
    request.set_slot(registration.slot.value());
    Encode(registration.incarnation, request.mutable_incarnation());
    request.set_address(registration.address);
    request.set_engine_url(registration.engine_url);
    request.set_engine_version(registration.engine_version);
    request.set_family(registration.family);
    request.set_tp_size(registration.tp_size);
    request.set_hash_kind(EncodeHashKind(registration.hash_kind));
    request.set_engine_pid(registration.engine_pid);
    request.set_attached(registration.attached);
    request.set_protocol(registration.protocol);
    v1::Registered reply;
    REFIT_RETURN_IF_ERROR(FromGrpc(stub_->RegisterAgent(&context, request, &reply), whom_));
    return DecodeMembership(whom_, reply);
  }
  Result<Membership> RegisterPolicy(const PolicyRegistration& registration, Duration deadline) override {
    grpc::ClientContext context;
    SetDeadline(context, deadline);
    v1::RegisterPolicyRequest request;
    request.set_rank(registration.rank.value());
    Encode(registration.incarnation, request.mutable_incarnation());
    request.set_address(registration.address);
    request.set_source(registration.source);
    request.set_protocol(registration.protocol);
    v1::Registered reply;
    REFIT_RETURN_IF_ERROR(FromGrpc(stub_->RegisterPolicy(&context, request, &reply), whom_));
    return DecodeMembership(whom_, reply);
  }
  Status AgentGone(const AgentEnd& end, Duration deadline) override {
    grpc::ClientContext context;
    Prepare(context, deadline);
    v1::AgentGoneRequest request;
    request.set_slot(end.slot.value());
    Encode(end.incarnation, request.mutable_incarnation());
    Encode(end.status, request.mutable_status());
    request.set_confirmed_dead(end.confirmed_dead);
    request.set_died_in_update(end.died_in_update);
    v1::Empty reply;
    return FromGrpc(stub_->AgentGone(&context, request, &reply), whom_);
  }
  Result<SyncReport> Sync(const SyncRequest& request, const ProgressSink& progress) override {
    grpc::ClientContext context;
    SetDeadline(context, request.budget + kAnswerMargin);
    v1::SyncRequest wire;
    wire.set_request_id(request.request_id);
    wire.set_source(request.source);
    wire.set_budget_ns(request.budget.count());
    const auto reader = stub_->Sync(&context, wire);
    v1::SyncProgress message;
    Result<SyncReport> report =
        Unavailable(StrCat(whom_, " ended the call without an outcome"), "ask for it again with the same request id");
    while (reader->Read(&message)) {
      if (message.has_outcome()) {
        report = Decode(message.outcome());
      } else {
        progress({message.phase(), message.bytes_total(), message.bytes_delivered()});
      }
    }
    const Status status = FromGrpc(reader->Finish(), whom_);
    return status.ok() || report.has_value() ? std::move(report) : Result<SyncReport>(status);
  }
  Result<FleetReport> GetStatus(Duration deadline) override {
    grpc::ClientContext context;
    Prepare(context, deadline);
    v1::FleetStatus reply;
    REFIT_RETURN_IF_ERROR(FromGrpc(stub_->GetStatus(&context, v1::StatusRequest(), &reply), whom_));
    return Decode(reply);
  }
  Result<VerifyReport> Verify(const VerifyRequest& request) override {
    grpc::ClientContext context;
    SetDeadline(context, request.budget + kAnswerMargin);
    v1::VerifyRequest wire;
    wire.set_slot(request.slot);
    wire.set_model(request.model);
    wire.set_budget_ns(request.budget.count());
    v1::VerifyReport reply;
    REFIT_RETURN_IF_ERROR(FromGrpc(stub_->Verify(&context, wire, &reply), whom_));
    return Decode(reply);
  }
  Status Shutdown(Duration budget) override {
    grpc::ClientContext context;
    SetDeadline(context, budget + kAnswerMargin);
    v1::ShutdownRequest request;
    request.set_budget_ns(budget.count());
    v1::ShutdownReply reply;
    REFIT_RETURN_IF_ERROR(FromGrpc(stub_->Shutdown(&context, request, &reply), whom_));
    return Decode(reply.status());
  }
  Result<control::History> GetHistory(Duration deadline) override {
    grpc::ClientContext context;
    Prepare(context, deadline);
    v1::HistoryReply reply;
    REFIT_RETURN_IF_ERROR(FromGrpc(stub_->GetHistory(&context, v1::HistoryRequest(), &reply), whom_));
    return Decode(reply);
  }
  Status ActOnSlot(const SlotRequest& request) override {
    grpc::ClientContext context;
    SetDeadline(context, request.budget + kAnswerMargin);
    v1::SlotRequest wire;
    wire.set_action(static_cast<std::uint32_t>(request.action) + 1);
    wire.set_slot(request.slot.value());
    wire.set_grace_ns(request.grace.count());
    wire.set_budget_ns(request.budget.count());
    v1::SlotReply reply;
    REFIT_RETURN_IF_ERROR(FromGrpc(stub_->ActOnSlot(&context, wire, &reply), whom_));
    return Decode(reply.status());
  }

 private:
  // A controller that is just starting is waited for, until the deadline.
  static void Prepare(grpc::ClientContext& context, Duration deadline) {
    SetDeadline(context, deadline);
    context.set_wait_for_ready(true);
  }

  const std::string whom_;
  std::unique_ptr<v1::Controller::Stub> stub_;
};

}  // namespace

Result<std::unique_ptr<Server>> ServeController(const std::string& listen, ControllerHandler& handler) {
  return StartServer(listen, std::make_unique<ControllerService>(handler));
}

std::unique_ptr<ControllerClient> ControllerClient::Connect(const std::string& address) {
  return std::make_unique<GrpcControllerClient>(address);
}

}  // namespace refit::rpc

// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0

#include "refit/store/etcd.h"

#include <grpc/support/time.h>
#include <grpcpp/grpcpp.h>

#include <algorithm>
#include <chrono>
#include <mutex>

#include "etcd/kv.grpc.pb.h"
#include "refit/base/str.h"
#include "refit/exec/clock.h"

namespace refit::store {
namespace {

constexpr std::string_view kScheme = "etcd://";
constexpr Duration kAttempt = std::chrono::milliseconds(1500);  // of one endpoint: an election takes about one second
constexpr std::int64_t kPage = 500;                             // keys of one answer, which gRPC caps at 4 MiB

// One connection per process and endpoint, kept: whoever looks for the holder does so four times a second.
std::shared_ptr<grpc::Channel> ChannelTo(const std::string& endpoint) {
  static std::mutex mutex;
  static std::map<std::string, std::shared_ptr<grpc::Channel>> channels;
  const std::lock_guard lock(mutex);
  std::shared_ptr<grpc::Channel>& channel = channels[endpoint];
  if (channel == nullptr) {
    grpc::ChannelArguments arguments;
    arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
    arguments.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, 100);
    arguments.SetInt(GRPC_ARG_MIN_RECONNECT_BACKOFF_MS, 100);
    arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, 500);
    channel = grpc::CreateCustomChannel(endpoint, grpc::InsecureChannelCredentials(), arguments);
  }
  return channel;
}

// The first key behind all that begin so.
std::string EndOf(std::string begin) {
  while (!begin.empty() && static_cast<unsigned char>(begin.back()) == 0xff) {
    begin.pop_back();
  }
  if (!begin.empty()) {
    ++begin.back();
  }
  return begin;
}

}  // namespace

bool IsEtcdPlace(std::string_view place) { return place.starts_with(kScheme); }

Result<EtcdPlace> ParseEtcdPlace(const std::string& place) {
  const auto wrong = [&place] {
    return InvalidArgument(StrCat("state directory ", place, " names no place in etcd"),
                           "etcd://HOST:PORT[,HOST:PORT]/PREFIX");
  };
  if (!IsEtcdPlace(place)) {
    return wrong();
  }
  const std::string_view rest = std::string_view(place).substr(kScheme.size());
  const std::size_t slash = std::min(rest.find('/'), rest.size());
  EtcdPlace parsed{.endpoints = {}, .prefix = std::string(rest.substr(slash))};
  while (parsed.prefix.ends_with('/')) {
    parsed.prefix.pop_back();
  }
  std::string_view hosts = rest.substr(0, slash);
  while (true) {
    const std::size_t comma = hosts.find(',');
    const std::string_view host = hosts.substr(0, comma);
    if (host.find(':') == std::string_view::npos || host.starts_with(':') || host.ends_with(':')) {
      return wrong();
    }
    parsed.endpoints.emplace_back(host);
    if (comma == std::string_view::npos) {
      break;
    }
    hosts.remove_prefix(comma + 1);
  }
  return parsed.prefix.empty() ? Result<EtcdPlace>(wrong()) : Result<EtcdPlace>(std::move(parsed));
}

struct Etcd::Endpoint {
  std::string address;
  std::unique_ptr<etcdserverpb::KV::Stub> stub;
};

Etcd::Etcd(std::vector<std::string> endpoints) {
  for (std::string& endpoint : endpoints) {
    auto stub = etcdserverpb::KV::NewStub(ChannelTo(endpoint));
    endpoints_.push_back({std::move(endpoint), std::move(stub)});
  }
}
Etcd::~Etcd() = default;

template <typename Call>
Status Etcd::Try(Instant deadline, Call call) {
  while (true) {
    Endpoint& endpoint = endpoints_[current_];
    grpc::ClientContext context;
    const Duration left = std::min(deadline - exec::Now(), kAttempt);
    context.set_deadline(gpr_time_from_nanos(left.count(), GPR_TIMESPAN));
    context.set_wait_for_ready(true);
    const grpc::Status status = call(*endpoint.stub, context);
    if (status.ok()) {
      return OkStatus();
    }
    const bool silent = status.error_code() == grpc::UNAVAILABLE || status.error_code() == grpc::DEADLINE_EXCEEDED;
    if (!silent || exec::Now() >= deadline) {
      return Unavailable(StrCat("etcd at ", endpoint.address, ": ", status.error_message()),
                         "see whether the cluster has a leader: etcdctl endpoint status");
    }
    current_ = (current_ + 1) % endpoints_.size();
  }
}

Result<EtcdAnswer> Etcd::Transact(const EtcdTransaction& transaction, Instant deadline) {
  etcdserverpb::TxnRequest request;
  for (const EtcdTransaction::Condition& condition : transaction.only_if) {
    etcdserverpb::Compare& compare = *request.add_compare();
    compare.set_key(condition.key);
    if (condition.value.has_value()) {
      compare.set_target(etcdserverpb::Compare::VALUE);
      compare.set_value(*condition.value);
    } else {
      compare.set_target(etcdserverpb::Compare::CREATE);
      compare.set_create_revision(0);
    }
  }
  for (const auto& [key, value] : transaction.writes) {
    etcdserverpb::PutRequest& put = *request.add_success()->mutable_request_put();
    put.set_key(key);
    put.set_value(value);
  }
  for (const std::string& key : transaction.otherwise_read) {
    request.add_failure()->mutable_request_range()->set_key(key);
  }
  etcdserverpb::TxnResponse response;
  REFIT_RETURN_IF_ERROR(Try(deadline, [&](etcdserverpb::KV::Stub& stub, grpc::ClientContext& context) {
    return stub.Txn(&context, request, &response);
  }));
  EtcdAnswer answer{.done = response.succeeded(), .read = {}};
  for (const etcdserverpb::ResponseOp& operation : response.responses()) {
    for (const etcdserverpb::KeyValue& entry : operation.response_range().kvs()) {
      answer.read[entry.key()] = entry.value();
    }
  }
  return answer;
}

Result<std::vector<std::pair<std::string, std::string>>> Etcd::ReadAll(const std::string& begin, Instant deadline) {
  std::vector<std::pair<std::string, std::string>> entries;
  etcdserverpb::RangeRequest request;
  request.set_key(begin);
  request.set_range_end(EndOf(begin));
  request.set_limit(kPage);
  while (true) {
    etcdserverpb::RangeResponse response;
    REFIT_RETURN_IF_ERROR(Try(deadline, [&](etcdserverpb::KV::Stub& stub, grpc::ClientContext& context) {
      return stub.Range(&context, request, &response);
    }));
    for (const etcdserverpb::KeyValue& entry : response.kvs()) {
      entries.emplace_back(entry.key(), entry.value());
    }
    if (!response.more() || response.kvs().empty()) {
      return entries;
    }
    request.set_key(entries.back().first + '\0');
    request.set_revision(response.header().revision());
  }
}

Result<std::string> Etcd::ReadLastKey(const std::string& begin, Instant deadline) {
  etcdserverpb::RangeRequest request;
  request.set_key(begin);
  request.set_range_end(EndOf(begin));
  request.set_limit(1);
  request.set_sort_order(etcdserverpb::RangeRequest::DESCEND);
  etcdserverpb::RangeResponse response;
  REFIT_RETURN_IF_ERROR(Try(deadline, [&](etcdserverpb::KV::Stub& stub, grpc::ClientContext& context) {
    return stub.Range(&context, request, &response);
  }));
  return response.kvs().empty() ? std::string() : response.kvs(0).key();
}

}  // namespace refit::store

// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0
//
// One asynchronous unary call: request, answer and context live until done ran. Private to rpc/.

#pragma once

#include <functional>
#include <memory>
#include <utility>

#include "refit/rpc/server.h"

namespace refit::rpc {

template <typename Request, typename Reply>
struct UnaryCall {
  grpc::ClientContext context;
  Request request;
  Reply reply;
};

// start(context, request, reply, callback) begins the call; finish(status, reply) runs exactly once, on an rpc thread,
// before the call leaves `calls`.
template <typename Request, typename Reply, typename Start, typename Finish>
void StartUnaryCall(CallsInFlight& calls, Request request, Duration deadline, const Start& start, Finish finish) {
  auto call = std::make_unique<UnaryCall<Request, Reply>>();
  call->request = std::move(request);
  SetDeadline(call->context, deadline);
  calls.Add(&call->context);
  auto* raw = call.release();
  start(&raw->context, &raw->request, &raw->reply,
        [raw, &calls, finish = std::move(finish)](const grpc::Status& status) {
          const std::unique_ptr<UnaryCall<Request, Reply>> owned(raw);
          finish(status, owned->reply);
          calls.Remove(&owned->context);
        });
}

}  // namespace refit::rpc

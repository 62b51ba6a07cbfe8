// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0
//
// Every message that one of our processes decodes: hostile bytes end in an error, never in a crash.

#include <google/protobuf/stubs/logging.h>

#include <cstddef>
#include <cstdint>

#include "refit/rpc/codec.h"

namespace {

template <typename Wire>
void Try(const std::uint8_t* data, std::size_t size) {
  Wire wire;
  if (wire.ParseFromArray(data, static_cast<int>(size))) {
    static_cast<void>(refit::rpc::Decode(wire).ok());
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  google::protobuf::SetLogHandler(nullptr);  // it reports every string that is no UTF-8
  Try<refit::v1::AgentCommand>(data, size);
  Try<refit::v1::AgentReply>(data, size);
  Try<refit::v1::EngineErrand>(data, size);
  Try<refit::v1::ErrandReply>(data, size);
  Try<refit::v1::PolicyCommand>(data, size);
  Try<refit::v1::PolicyReply>(data, size);
  Try<refit::v1::OpenStream>(data, size);
  Try<refit::v1::FromSender>(data, size);
  return 0;
}

// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0

#include "tests/support/engine_double.h"

#include <algorithm>
#include <string_view>

#include "refit/base/str.h"

namespace refit::testing {

using sync::Answer;
using sync::AnswerKind;
using sync::Operation;
using sync::SessionFamily;

namespace {

Answer Ok() { return {AnswerKind::kOk, ""}; }
Answer Refuse(std::string message) { return {AnswerKind::kRefused, std::move(message)}; }
Answer Nothing(std::string message) { return {AnswerKind::kNone, std::move(message)}; }

}  // namespace

int EngineDouble::count(std::string_view call) const {
  return static_cast<int>(std::count(calls_.begin(), calls_.end(), call));
}

bool EngineDouble::serves(WeightVersion version) const {
  return generates() && whole() && !weights_.empty() && weights_.front() == version;
}

// Records the call; false where nothing can answer any more.
bool EngineDouble::Begin(Operation operation) {
  calls_.emplace_back(ToString(operation));
  if (unanswered_) {
    Break(StrCat(ToString(operation), " after a call without an answer"));
  }
  return !dead_;
}

std::optional<Answer> EngineDouble::TakeFault(Operation operation, bool& runs) {
  runs = true;
  const auto found = faults_.find(operation);
  if (found == faults_.end() || found->second.times == 0) {
    return std::nullopt;
  }
  Fault& fault = found->second;
  if (fault.skip > 0) {
    --fault.skip;
    return std::nullopt;
  }
  --fault.times;
  runs = fault.runs;
  unanswered_ = unanswered_ || fault.kind == AnswerKind::kNone;
  return Answer{fault.kind, StrCat("fault in ", ToString(operation))};
}

Answer EngineDouble::Call(Operation operation, WeightVersion label) {
  if (!Begin(operation)) {
    return Nothing("connection refused");
  }
  bool runs = true;
  const std::optional<Answer> fault = TakeFault(operation, runs);
  if (!runs) {
    return *fault;
  }
  const Answer answer = Run(operation, label);
  return fault.value_or(answer);
}

Answer EngineDouble::Run(Operation operation, WeightVersion label) {
  switch (operation) {
    case Operation::kPause: paused_ = true; return Ok();
    case Operation::kFlush:
      if (!paused_) {
        return Refuse("requests are pending");
      }
      cache_is_old_ = false;
      return Ok();
    case Operation::kBegin:
    case Operation::kEnd: return RunSession(operation);
    case Operation::kLabel: label_ = label; return Ok();
    case Operation::kOnloadWeights:
    case Operation::kOnloadKvCache: {
      bool& released = operation == Operation::kOnloadWeights ? weights_released_ : kv_cache_released_;
      if (!released) {
        dead_ = true;
        return Nothing("the server died of an onload of what was not released");
      }
      released = false;
      return Ok();
    }
    case Operation::kRelease:
      weights_released_ = true;
      kv_cache_released_ = true;
      return Ok();
    case Operation::kResume: return Resume();
    case Operation::kUpdate: break;
  }
  return Refuse("no such call");
}

Answer EngineDouble::RunSession(Operation operation) {
  if (family_ == SessionFamily::kA) {
    if (operation == Operation::kEnd) {
      Break("end on family a");
    }
    return {AnswerKind::kNotFound, "Not Found"};
  }
  const bool begin = operation == Operation::kBegin;
  if (begin == session_open_) {
    return WrongSessionCall(begin ? "a session is open" : "no session is open");
  }
  if (begin && cache_is_old_) {
    Break("begin before a successful flush");
  }
  session_open_ = begin;
  return Ok();
}

Answer EngineDouble::WrongSessionCall(const char* message) {
  if (family_ == SessionFamily::kB) {
    Break(StrCat("killed the server: ", message));
    dead_ = true;
    return Nothing("the server died");
  }
  return Refuse(message);
}

Answer EngineDouble::Resume() {
  if (session_open_) {
    Break("resumed with a session open");
  }
  if (kv_cache_released_) {
    Break("resumed without its KV cache");
  }
  if (!whole()) {
    Break("resumed with a mix of weights");
  }
  paused_ = false;
  cache_is_old_ = true;
  return Ok();
}

Answer EngineDouble::Update(std::size_t load, WeightVersion bytes, std::optional<WeightVersion> label) {
  if (!Begin(Operation::kUpdate)) {
    return Nothing("connection refused");
  }
  bool runs = true;
  const std::optional<Answer> fault = TakeFault(Operation::kUpdate, runs);
  if (!runs) {
    return *fault;
  }
  if (family_ != SessionFamily::kA && !session_open_) {
    return WrongSessionCall("update outside a session");
  }
  if (!paused_) {
    Break("updated while it generates: tokens of mixed weights");
  }
  if (cache_is_old_) {
    Break("updated with KV of the outgoing weights");
  }
  if (weights_released_) {
    Break("updated while its weights are released");
  }
  weights_[load] = bytes;
  if (label.has_value()) {
    label_ = *label;
    update_labels_.push_back(*label);
  }
  return fault.value_or(Ok());
}

}  // namespace refit::testing

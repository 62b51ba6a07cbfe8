// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0
//
// Status and Result<T>: how everything here fails. No exceptions cross a function of ours.
// Codes are numerically gRPC's, so rpc/ translates them without a table.
// A message is one line that names the thing and the value; the remedy says what to do about it.

#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "refit/base/check.h"

namespace refit {

enum class StatusCode : std::int32_t {
  kOk = 0,
  kCancelled = 1,
  kUnknown = 2,
  kInvalidArgument = 3,
  kDeadlineExceeded = 4,
  kNotFound = 5,
  kAlreadyExists = 6,
  kPermissionDenied = 7,
  kResourceExhausted = 8,
  kFailedPrecondition = 9,
  kAborted = 10,
  kOutOfRange = 11,
  kUnimplemented = 12,
  kInternal = 13,
  kUnavailable = 14,
  kDataLoss = 15,
};

// "INVALID_ARGUMENT" and so on, as gRPC spells them.
std::string_view ToString(StatusCode code);

class [[nodiscard]] Status {
 public:
  Status() = default;
  Status(StatusCode code, std::string message, std::string remedy = {})
      : code_(code), message_(std::move(message)), remedy_(std::move(remedy)) {}

  bool ok() const { return code_ == StatusCode::kOk; }
  StatusCode code() const { return code_; }
  const std::string& message() const { return message_; }
  const std::string& remedy() const { return remedy_; }

  // The same status with "context: " in front of the message. Adds only what the callee could not know.
  Status WithContext(std::string_view context) const;

  // "INVALID_ARGUMENT: message (remedy)", on one line.
  std::string ToString() const;

  friend bool operator==(const Status&, const Status&) = default;

 private:
  StatusCode code_ = StatusCode::kOk;
  std::string message_;
  std::string remedy_;
};

inline Status OkStatus() { return {}; }
inline Status InvalidArgument(std::string message, std::string remedy = {}) {
  return {StatusCode::kInvalidArgument, std::move(message), std::move(remedy)};
}
inline Status FailedPrecondition(std::string message, std::string remedy = {}) {
  return {StatusCode::kFailedPrecondition, std::move(message), std::move(remedy)};
}
inline Status NotFound(std::string message, std::string remedy = {}) {
  return {StatusCode::kNotFound, std::move(message), std::move(remedy)};
}
inline Status DeadlineExceeded(std::string message, std::string remedy = {}) {
  return {StatusCode::kDeadlineExceeded, std::move(message), std::move(remedy)};
}
inline Status Unavailable(std::string message, std::string remedy = {}) {
  return {StatusCode::kUnavailable, std::move(message), std::move(remedy)};
}
inline Status ResourceExhausted(std::string message, std::string remedy = {}) {
  return {StatusCode::kResourceExhausted, std::move(message), std::move(remedy)};
}
inline Status Aborted(std::string message, std::string remedy = {}) {
  return {StatusCode::kAborted, std::move(message), std::move(remedy)};
}
inline Status DataLoss(std::string message, std::string remedy = {}) {
  return {StatusCode::kDataLoss, std::move(message), std::move(remedy)};
}
inline Status Internal(std::string message, std::string remedy = {}) {
  return {StatusCode::kInternal, std::move(message), std::move(remedy)};
}
inline Status Unimplemented(std::string message, std::string remedy = {}) {
  return {StatusCode::kUnimplemented, std::move(message), std::move(remedy)};
}

// A value or the Status that says why there is none. Members are named as in std::expected.
template <typename T>
class [[nodiscard]] Result {
 public:
  Result(T value) : value_(std::move(value)) {}         // NOLINT(google-explicit-constructor): a value is a result
  Result(Status status) : status_(std::move(status)) {  // NOLINT(google-explicit-constructor)
    REFIT_CHECK(!status_.ok(), "a Result made from a Status needs an error");
  }

  bool has_value() const { return value_.has_value(); }
  bool ok() const { return has_value(); }
  explicit operator bool() const { return has_value(); }

  T& value() & {
    REFIT_CHECK(has_value(), status_.message().c_str());
    return *value_;
  }
  const T& value() const& {
    REFIT_CHECK(has_value(), status_.message().c_str());
    return *value_;
  }
  T&& value() && {
    REFIT_CHECK(has_value(), status_.message().c_str());
    return *std::move(value_);
  }
  T& operator*() & { return value(); }
  const T& operator*() const& { return value(); }
  T&& operator*() && { return std::move(*this).value(); }
  T* operator->() { return &value(); }
  const T* operator->() const { return &value(); }

  // OK when there is a value.
  const Status& status() const { return status_; }

 private:
  std::optional<T> value_;
  Status status_;
};

}  // namespace refit

#define REFIT_STATUS_CONCAT_INNER(a, b) a##b
#define REFIT_STATUS_CONCAT(a, b) REFIT_STATUS_CONCAT_INNER(a, b)

#define REFIT_RETURN_IF_ERROR(expression)                                  \
  do {                                                                     \
    if (::refit::Status refit_status = (expression); !refit_status.ok()) { \
      return refit_status;                                                 \
    }                                                                      \
  } while (false)

#define REFIT_ASSIGN_OR_RETURN_INNER(result, declaration, expression) \
  auto result = (expression);                                         \
  if (!result.has_value()) {                                          \
    return result.status();                                           \
  }                                                                   \
  declaration = *std::move(result)

#define REFIT_ASSIGN_OR_RETURN(declaration, expression) \
  REFIT_ASSIGN_OR_RETURN_INNER(REFIT_STATUS_CONCAT(refit_result_, __LINE__), declaration, expression)

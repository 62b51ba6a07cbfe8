// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0
//
// A request's JSON object, read field by field as the server's validation does: unknown fields are ignored, the first
// wrong one makes the answer a 400 that echoes the input.

#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "refit/engine/reference/routes.h"

namespace refit::engine::reference {

class BodyFields {
 public:
  enum class Empty : std::uint8_t { kRefused, kAllowed };  // whether a request may have no body at all
  explicit BodyFields(std::string_view body, Empty empty = Empty::kRefused);
  ~BodyFields();
  BodyFields(const BodyFields&) = delete;
  BodyFields& operator=(const BodyFields&) = delete;

  // Set once something was wrong; the values read are then meaningless.
  const std::optional<HttpReply>& error() const { return error_; }

  bool Has(std::string_view name) const;  // present and not null
  std::optional<std::string> String(std::string_view name);
  std::string RequiredString(std::string_view name);
  bool Bool(std::string_view name, bool fallback);
  std::int64_t Integer(std::string_view name, std::int64_t fallback);
  double Number(std::string_view name, double fallback);
  std::vector<std::string> Strings(std::string_view name);  // none when absent or null
  // A required list of base64 strings, decoded.
  std::vector<std::string> RequiredBase64(std::string_view name);
  std::vector<std::int64_t> Integers(std::string_view name);
  // One of `choices`; the first when absent.
  std::string Choice(std::string_view name, const std::vector<std::string_view>& choices);
  // A nested object; an empty one when absent or null.
  std::unique_ptr<BodyFields> Object(std::string_view name);

  // FastAPI's answer to a wrong field: the input comes back twice.
  void Fail(std::string_view type, std::string_view name, std::string_view message);

 private:
  struct Json;
  BodyFields();
  std::string text_;  // for the echo
  std::unique_ptr<Json> json_;
  std::optional<HttpReply> error_;
};

}  // namespace refit::engine::reference

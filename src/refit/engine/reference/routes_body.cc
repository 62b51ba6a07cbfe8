// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0

#include "refit/engine/reference/routes_body.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "refit/base/str.h"
#include "refit/engine/reference/payload_reader.h"

namespace refit::engine::reference {

using nlohmann::json;

struct BodyFields::Json {
  json value = json::object();

  // Null when absent or JSON null.
  const json* Find(std::string_view name) const {
    const auto found = value.find(name);
    return found == value.end() || found->is_null() ? nullptr : &*found;
  }
};

BodyFields::BodyFields() : json_(std::make_unique<Json>()) {}

BodyFields::BodyFields(std::string_view body, Empty empty) : BodyFields() {
  text_ = body;
  if (body.empty()) {
    if (empty == Empty::kRefused) {
      Fail("missing", "", "Field required");
    }
    return;
  }
  json_->value = json::parse(body, nullptr, false);
  if (json_->value.is_discarded()) {
    Fail("json_invalid", "0", "JSON decode error");
  } else if (!json_->value.is_object()) {
    Fail("dataclass_type", "", "Input should be a dictionary or an instance of the request");
  }
  if (error_.has_value()) {
    json_->value = json::object();
  }
}

BodyFields::~BodyFields() = default;

void BodyFields::Fail(std::string_view type, std::string_view name, std::string_view message) {
  if (error_.has_value()) {
    return;
  }
  const std::string one =
      StrCat("{'type': '", type, "', 'loc': ('body', '", name, "'), 'msg': '", message, "', 'input': ", text_, "}");
  const json body = {{"object", "error"},
                     {"message", StrCat("1 validation error:\n  ", one, "\n [", one, "]")},
                     {"type", "Bad Request"},
                     {"param", nullptr},
                     {"code", 400}};
  error_ = HttpReply{400, body.dump(-1, ' ', false, json::error_handler_t::replace)};
}

bool BodyFields::Has(std::string_view name) const { return json_->Find(name) != nullptr; }

std::optional<std::string> BodyFields::String(std::string_view name) {
  const json* field = json_->Find(name);
  if (field == nullptr) {
    return std::nullopt;
  }
  if (!field->is_string()) {
    Fail("string_type", name, "Input should be a valid string");
    return std::nullopt;
  }
  return field->get<std::string>();
}

std::string BodyFields::RequiredString(std::string_view name) {
  if (!Has(name)) {
    Fail("missing", name, "Field required");
  }
  return String(name).value_or("");
}

bool BodyFields::Bool(std::string_view name, bool fallback) {
  const json* field = json_->Find(name);
  if (field != nullptr && !field->is_boolean()) {
    Fail("bool_type", name, "Input should be a valid boolean");
  }
  return field != nullptr && field->is_boolean() ? field->get<bool>() : fallback;
}

std::int64_t BodyFields::Integer(std::string_view name, std::int64_t fallback) {
  const json* field = json_->Find(name);
  if (field != nullptr && !field->is_number_integer()) {
    Fail("int_type", name, "Input should be a valid integer");
  }
  return field != nullptr && field->is_number_integer() ? field->get<std::int64_t>() : fallback;
}

double BodyFields::Number(std::string_view name, double fallback) {
  const json* field = json_->Find(name);
  if (field != nullptr && !field->is_number()) {
    Fail("float_type", name, "Input should be a valid number");
  }
  return field != nullptr && field->is_number() ? field->get<double>() : fallback;
}

std::vector<std::string> BodyFields::Strings(std::string_view name) {
  const json* field = json_->Find(name);
  if (field == nullptr) {
    return {};
  }
  if (!field->is_array() || !std::ranges::all_of(*field, [](const json& item) { return item.is_string(); })) {
    Fail("list_type", name, "Input should be a valid list of strings");
    return {};
  }
  return field->get<std::vector<std::string>>();
}

std::vector<std::string> BodyFields::RequiredBase64(std::string_view name) {
  if (!Has(name)) {
    Fail("missing", name, "Field required");
    return {};
  }
  const json* field = json_->Find(name);
  std::vector<std::string> decoded;
  if (!field->is_array()) {
    Fail("list_type", name, "Input should be a valid list");
    return {};
  }
  for (const json& item : *field) {
    // Ranks of one host mostly get the same string.
    if (item.is_string() && !decoded.empty() && item == (*field)[decoded.size() - 1]) {
      decoded.push_back(decoded.back());
      continue;
    }
    std::optional<std::string> bytes =
        item.is_string() ? DecodeBase64(item.get_ref<const std::string&>()) : std::nullopt;
    if (!bytes.has_value()) {
      Fail("value_error", name, "Value error, each payload must be a base64 string");
      return {};
    }
    decoded.push_back(*std::move(bytes));
  }
  return decoded;
}

std::vector<std::int64_t> BodyFields::Integers(std::string_view name) {
  const json* field = json_->Find(name);
  if (field == nullptr) {
    return {};
  }
  if (!field->is_array() || !std::ranges::all_of(*field, [](const json& item) { return item.is_number_integer(); })) {
    Fail("list_type", name, "Input should be a valid list of integers");
    return {};
  }
  return field->get<std::vector<std::int64_t>>();
}

std::string BodyFields::Choice(std::string_view name, const std::vector<std::string_view>& choices) {
  std::string chosen = String(name).value_or(std::string(choices.front()));
  if (std::ranges::find(choices, chosen) == choices.end()) {
    Fail("literal_error", name, StrCat("Input should be one of the ", choices.size(), " known values"));
  }
  return chosen;
}

std::unique_ptr<BodyFields> BodyFields::Object(std::string_view name) {
  std::unique_ptr<BodyFields> nested(new BodyFields());
  const json* field = json_->Find(name);
  if (field != nullptr && !field->is_object()) {
    Fail("dict_type", name, "Input should be a valid dictionary");
  } else if (field != nullptr) {
    nested->json_->value = *field;
  }
  return nested;
}

}  // namespace refit::engine::reference

// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0

#include "refit/checkpoint/json.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

namespace refit::checkpoint {
namespace {

using Json = nlohmann::json;
using Kind = JsonValue::Kind;

constexpr std::size_t kShownLength = 60;

// Builds the tree from the parser's events. open_ holds pointers into items of the parent: stable, because a parent
// gets no further child while one is open.
class TreeBuilder final : public nlohmann::json_sax<Json> {
 public:
  const std::string& error() const { return error_; }
  JsonValue& root() { return root_; }

  bool null() override { return Add(Kind::kNull) != nullptr; }
  bool boolean(bool value) override {
    JsonValue* added = Add(Kind::kBool);
    return added != nullptr && (added->boolean = value, true);
  }
  bool number_integer(number_integer_t value) override { return AddInteger(value); }
  bool number_unsigned(number_unsigned_t value) override {
    if (std::in_range<std::int64_t>(value)) {
      return AddInteger(static_cast<std::int64_t>(value));
    }
    return AddNumber(static_cast<double>(value));
  }
  bool number_float(number_float_t value, const string_t& /*text*/) override { return AddNumber(value); }
  bool string(string_t& value) override {
    JsonValue* added = Add(Kind::kString);
    return added != nullptr && (added->text = std::move(value), true);
  }
  bool binary(binary_t& /*value*/) override { return Fail("binary data"); }
  bool start_array(std::size_t /*size*/) override { return Open(Kind::kArray); }
  bool end_array() override {
    open_.pop_back();
    return true;
  }
  bool start_object(std::size_t /*size*/) override { return Open(Kind::kObject); }
  bool key(string_t& value) override {
    open_.back()->keys.push_back(std::move(value));
    return true;
  }
  bool end_object() override {
    JsonValue& object = *open_.back();
    open_.pop_back();
    return SortByKey(object);
  }
  bool parse_error(std::size_t position, const std::string& /*token*/, const Json::exception& /*error*/) override {
    return Fail(fmt::format("bad JSON at byte {}", position));
  }

 private:
  bool Fail(std::string why) {
    error_ = std::move(why);
    return false;
  }
  JsonValue* Add(Kind kind) {
    if (++value_count_ > kMaxJsonValues) {
      Fail(fmt::format("JSON of more than {} values", kMaxJsonValues));
      return nullptr;
    }
    JsonValue& added = open_.empty() ? root_ : open_.back()->items.emplace_back();
    added.kind = kind;
    return &added;
  }
  bool AddInteger(std::int64_t value) {
    JsonValue* added = Add(Kind::kInteger);
    return added != nullptr && (added->integer = value, added->number = static_cast<double>(value), true);
  }
  bool AddNumber(double value) {
    JsonValue* added = Add(Kind::kNumber);
    return added != nullptr && (added->number = value, true);
  }
  bool Open(Kind kind) {
    if (open_.size() == kMaxJsonDepth) {
      return Fail(fmt::format("JSON nested more than {} deep", kMaxJsonDepth));
    }
    JsonValue* added = Add(kind);
    return added != nullptr && (open_.push_back(added), true);
  }
  bool SortByKey(JsonValue& object) {
    std::vector<std::size_t> order(object.keys.size());
    std::iota(order.begin(), order.end(), std::size_t{0});
    std::sort(order.begin(), order.end(),
              [&object](std::size_t a, std::size_t b) { return object.keys[a] < object.keys[b]; });
    std::vector<std::string> keys;
    std::vector<JsonValue> items;
    keys.reserve(order.size());
    items.reserve(order.size());
    for (const std::size_t index : order) {
      if (!keys.empty() && keys.back() == object.keys[index]) {
        return Fail(fmt::format("key \"{}\" occurs twice", keys.back()));
      }
      keys.push_back(std::move(object.keys[index]));
      items.push_back(std::move(object.items[index]));
    }
    object.keys = std::move(keys);
    object.items = std::move(items);
    return true;
  }

  JsonValue root_;
  std::vector<JsonValue*> open_;
  std::size_t value_count_ = 0;
  std::string error_;
};

void AppendText(const JsonValue& value, std::string& out) {
  switch (value.kind) {
    case Kind::kNull: out += "null"; return;
    case Kind::kBool: out += value.boolean ? "true" : "false"; return;
    case Kind::kInteger: out += std::to_string(value.integer); return;
    case Kind::kNumber: out += fmt::format("{}", value.number); return;
    case Kind::kString: out += Quote(value.text); return;
    case Kind::kArray:
    case Kind::kObject: break;
  }
  const bool object = value.is(Kind::kObject);
  out += object ? '{' : '[';
  for (std::size_t i = 0; i < value.items.size() && out.size() <= kShownLength; ++i) {
    out += i == 0 ? "" : ", ";
    if (object) {
      out += Quote(value.keys[i]) + ": ";
    }
    AppendText(value.items[i], out);
  }
  out += object ? '}' : ']';
}

}  // namespace

const JsonValue* JsonValue::Find(std::string_view key) const {
  const auto at = std::lower_bound(keys.begin(), keys.end(), key);
  if (at == keys.end() || *at != key) {
    return nullptr;
  }
  return &items[static_cast<std::size_t>(at - keys.begin())];
}

Result<JsonValue> ParseJson(std::string_view text) {
  TreeBuilder builder;
  if (!Json::sax_parse(text.begin(), text.end(), &builder)) {
    return InvalidArgument(builder.error());
  }
  return std::move(builder.root());
}

std::string Quote(std::string_view text) { return Json(text).dump(-1, ' ', false, Json::error_handler_t::replace); }

std::string ToString(const JsonValue& value) {
  std::string out;
  AppendText(value, out);
  if (out.size() > kShownLength) {
    out.resize(kShownLength);
    out += "…";
  }
  return out;
}

}  // namespace refit::checkpoint

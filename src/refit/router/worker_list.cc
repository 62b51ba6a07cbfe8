// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0

#include "refit/router/worker_list.h"

#include <algorithm>
#include <charconv>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>

#include "refit/base/str.h"

namespace refit::router {
namespace {

using Json = nlohmann::json;

constexpr std::size_t kMaxIdLength = 64;  // a UUID has 36

Status Unbelievable(std::string_view why) {
  return DataLoss(StrCat("the router's list of workers cannot be believed: ", why),
                  "is there an sglang-router 0.3.2 under that address?");
}

const Json* Find(const Json& object, std::string_view key) {
  const auto found = object.find(key);
  return found == object.end() ? nullptr : &*found;
}

std::string_view TextAt(const Json& object, std::string_view key) {
  const Json* const value = Find(object, key);
  return value != nullptr && value->is_string() ? std::string_view(value->get_ref<const std::string&>())
                                                : std::string_view();
}

bool IsId(std::string_view text) {
  const auto fits = [](char c) {
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F') || c == '-';
  };
  return !text.empty() && text.size() <= kMaxIdLength && std::all_of(text.begin(), text.end(), fits);
}

template <typename Number>
std::optional<Number> ParseNumber(std::string_view text, int base) {
  Number value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value, base);
  return error == std::errc() && end == text.data() + text.size() ? std::optional(value) : std::nullopt;
}

// Labels that only look like ours make an entry of somebody else's, not a broken list.
void ReadLabels(const Json& metadata, Worker& worker) {
  const auto slot = ParseNumber<std::uint32_t>(TextAt(metadata, kSlotLabel), 10);
  const std::string_view digits = TextAt(metadata, kIncarnationLabel);
  if (!slot.has_value() || digits.size() != 32) {
    return;
  }
  const auto high = ParseNumber<std::uint64_t>(digits.substr(0, 16), 16);
  const auto low = ParseNumber<std::uint64_t>(digits.substr(16), 16);
  if (high.has_value() && low.has_value()) {
    worker.slot = SlotIndex(*slot);
    worker.incarnation = Incarnation{{*high, *low}};
  }
}

}  // namespace

Result<std::vector<Worker>> ParseWorkerList(std::string_view text) {
  const Json answer = Json::parse(text, nullptr, false);
  if (!answer.is_object()) {
    return Unbelievable("it is no JSON object");
  }
  const Json* const entries = Find(answer, "workers");
  const Json* const total = Find(answer, "total");
  if (entries == nullptr || !entries->is_array() || total == nullptr || !total->is_number_unsigned()) {
    return Unbelievable("it has no \"workers\" or no \"total\"");
  }
  if (total->get<std::uint64_t>() != entries->size()) {
    return Unbelievable(StrCat("\"total\" is ", total->get<std::uint64_t>(), ", its entries are ", entries->size()));
  }
  std::vector<Worker> workers;
  std::set<std::string_view> ids;
  for (const Json& entry : *entries) {
    if (!entry.is_object()) {
      return Unbelievable("an entry is no object");
    }
    const std::string_view id = TextAt(entry, "id");
    const std::string_view url = TextAt(entry, "url");
    if (!IsId(id) || url.empty()) {
      return Unbelievable("an entry has no \"id\" that is a UUID, or no \"url\"");
    }
    if (!ids.insert(id).second) {
      return Unbelievable(StrCat("it has two entries with the id ", id));
    }
    Worker& worker = workers.emplace_back(Worker{std::string(id), std::string(url), {}, {}});
    if (const Json* const metadata = Find(entry, "metadata"); metadata != nullptr && metadata->is_object()) {
      ReadLabels(*metadata, worker);
    }
  }
  return workers;
}

}  // namespace refit::router

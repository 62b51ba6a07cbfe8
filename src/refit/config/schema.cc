// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0

#include "refit/config/schema.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <numeric>
#include <utility>

#include "refit/base/str.h"

namespace refit::config {
namespace {

constexpr std::size_t kNearDistance = 3;  // edits: more is another word
constexpr ByteCount kMaxBytes = 1024 * kGiB;
constexpr double kMaxSeconds = 30.0 * 24 * 3600;

// "engines[].slot" of "engines[]": "slot"; nothing for what lies elsewhere or deeper.
std::string_view ChildName(const KeySpec& spec, std::string_view parent) {
  std::string_view rest = spec.path;
  if (!parent.empty()) {
    if (!rest.starts_with(parent) || rest.size() <= parent.size() || rest[parent.size()] != '.') {
      return {};
    }
    rest.remove_prefix(parent.size() + 1);
  }
  return rest.find('.') == std::string_view::npos && rest.find('[') == std::string_view::npos ? rest
                                                                                              : std::string_view{};
}

std::vector<const KeySpec*> ChildrenOf(std::string_view parent) {
  std::vector<const KeySpec*> children;
  for (const KeySpec& spec : Keys()) {
    if (!ChildName(spec, parent).empty()) {
      children.push_back(&spec);
    }
  }
  return children;
}

std::size_t EditDistance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), std::size_t{0});
  for (std::size_t i = 0; i < a.size(); ++i) {
    std::size_t diagonal = std::exchange(row[0], i + 1);
    for (std::size_t j = 0; j < b.size(); ++j) {
      const std::size_t change = diagonal + (a[i] == b[j] ? 0 : 1);
      diagonal = std::exchange(row[j + 1], std::min({row[j] + 1, row[j + 1] + 1, change}));
    }
  }
  return row.back();
}

std::string LineText(int line) { return line > 0 ? StrCat("line ", line, ": ") : std::string(); }

Status Wrong(const Node& node, const std::string& path, std::string_view problem, std::string_view allowed) {
  return InvalidArgument(StrCat(LineText(node.line), path, " ", problem), StrCat("allowed: ", allowed));
}

bool IsInteger(std::string_view text) {
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() && end == text.data() + text.size();
}
bool IsNumber(const std::string& text) {
  char* end = nullptr;
  const double value = std::strtod(text.c_str(), &end);
  return !text.empty() && end == text.c_str() + text.size() && std::isfinite(value);
}

bool IsOneOf(std::string_view text, std::string_view choices) {
  while (!choices.empty()) {
    const std::size_t bar = choices.find(" | ");
    if (choices.substr(0, bar) == text) {
      return true;
    }
    choices.remove_prefix(bar == std::string_view::npos ? choices.size() : bar + 3);
  }
  return false;
}

Status CheckScalar(const KeySpec& spec, const Node& node, const std::string& path) {
  if (node.kind != Node::Kind::kScalar) {
    return Wrong(node, path, node.kind == Node::Kind::kNull ? "has no value" : "is no single value", spec.allowed);
  }
  const std::string is = StrCat("is \"", node.text, "\"");
  switch (spec.kind) {
    case KeyKind::kWord: return IsOneOf(node.text, spec.allowed) ? OkStatus() : Wrong(node, path, is, spec.allowed);
    case KeyKind::kSwitch:
      return node.text == "true" || node.text == "false" ? OkStatus() : Wrong(node, path, is, "true or false");
    case KeyKind::kInteger:
      return IsInteger(node.text) ? OkStatus() : Wrong(node, path, is, StrCat("a whole number, ", spec.allowed));
    case KeyKind::kNumber:
      return IsNumber(node.text) ? OkStatus() : Wrong(node, path, is, StrCat("a number, ", spec.allowed));
    case KeyKind::kBytes:
      return ParseBytes(node.text).ok()
                 ? OkStatus()
                 : Wrong(node, path, is, StrCat("a size with its unit like 4MiB, ", spec.allowed));
    case KeyKind::kDuration:
      return ParseDuration(node.text).ok()
                 ? OkStatus()
                 : Wrong(node, path, is, StrCat("a time with its unit like 60s or 500ms, ", spec.allowed));
    default: return node.text.empty() ? Wrong(node, path, "is empty", spec.allowed) : OkStatus();
  }
}

// Fills `section`, whose schema path is `schema_path` and whose path for people is `path`, in place.
Status FillSection(Node& section, const std::string& schema_path, const std::string& path);

Status FillValue(const KeySpec& spec, Node& node, const std::string& path) {
  switch (spec.kind) {
    case KeyKind::kFree: return OkStatus();
    case KeyKind::kSection:
      if (node.kind != Node::Kind::kMap && node.kind != Node::Kind::kNull) {
        return Wrong(node, path, "is no section", "keys of its own, indented below it");
      }
      return FillSection(node, std::string(spec.path), path);
    case KeyKind::kTextList:
      if (node.kind != Node::Kind::kList) {
        return Wrong(node, path, "is no list", "a list like [--model, DIR]");
      }
      for (const Node& item : node.items) {
        if (item.kind != Node::Kind::kScalar) {
          return Wrong(item, path, "holds something that is no word", "a list like [--model, DIR]");
        }
      }
      return OkStatus();
    case KeyKind::kList:
      if (node.kind != Node::Kind::kList || node.items.empty()) {
        return Wrong(node, path, node.kind == Node::Kind::kList ? "is empty" : "is no list", spec.allowed);
      }
      for (std::size_t i = 0; i < node.items.size(); ++i) {
        const std::string item_path = StrCat(path, "[", i, "]");
        if (node.items[i].kind != Node::Kind::kMap) {
          return Wrong(node.items[i], item_path, "is no entry", "- {key: value, …}");
        }
        REFIT_RETURN_IF_ERROR(FillSection(node.items[i], StrCat(spec.path, "[]"), item_path));
      }
      return OkStatus();
    default: return CheckScalar(spec, node, path);
  }
}

Status FillSection(Node& section, const std::string& schema_path, const std::string& path) {
  const std::vector<const KeySpec*> children = ChildrenOf(schema_path);
  const auto named = [&](std::string_view key) { return path.empty() ? std::string(key) : StrCat(path, ".", key); };
  for (std::size_t i = 0; i < section.keys.size(); ++i) {
    const std::string& key = section.keys[i];
    const auto found = std::find_if(children.begin(), children.end(),
                                    [&](const KeySpec* spec) { return ChildName(*spec, schema_path) == key; });
    if (found == children.end()) {
      const std::string nearest = NearestKey(schema_path, key);
      return InvalidArgument(
          StrCat(LineText(section.items[i].line), "unknown key ", named(key)),
          nearest.empty() ? "see docs/configuration.md" : StrCat("did you mean ", named(nearest), "?"));
    }
    // "tp_size:" with nothing behind it means what leaving it out means only where there is nothing to require.
    REFIT_RETURN_IF_ERROR(FillValue(**found, section.items[i], named(key)));
  }
  for (const KeySpec* spec : children) {
    const std::string key(ChildName(*spec, schema_path));
    if (section.Find(key) != nullptr) {
      continue;
    }
    if (spec->needed == Needed::kRequired) {
      return InvalidArgument(StrCat(LineText(section.line), "required key ", named(key), " is missing"),
                             StrCat("give ", spec->allowed, ": ", spec->meaning));
    }
    Node filled;
    if (spec->kind == KeyKind::kSection && spec->transport.empty() && spec->needed != Needed::kWhereGiven) {
      REFIT_RETURN_IF_ERROR(FillSection(filled, std::string(spec->path), named(key)));
    } else if (!spec->default_text.empty()) {
      filled.kind = Node::Kind::kScalar;
      filled.text = spec->default_text;
    }
    if (filled.kind != Node::Kind::kNull) {
      section.Add(key, std::move(filled));
    }
  }
  return OkStatus();
}

struct Unit {
  std::string_view name;
  std::uint64_t factor;
};

// "1.5h" is not accepted: whole numbers only, so that a value reads as it is kept.
std::optional<std::uint64_t> ParseWithUnit(std::string_view text, std::span<const Unit> units) {
  std::uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc()) {
    return std::nullopt;
  }
  const std::string_view rest(end, static_cast<std::size_t>(text.data() + text.size() - end));
  for (const Unit& unit : units) {
    if (rest == unit.name) {
      return CheckedMultiply(value, unit.factor);
    }
  }
  return std::nullopt;
}

}  // namespace

Result<Node> ApplySchema(const Node& root) {
  if (root.kind != Node::Kind::kMap && root.kind != Node::Kind::kNull) {
    return InvalidArgument("the file holds no keys",
                           "start with `engines:` and `policies:`; see docs/configuration.md");
  }
  Node resolved = root;
  REFIT_RETURN_IF_ERROR(FillSection(resolved, "", ""));
  return resolved;
}

std::string NearestKey(std::string_view parent, std::string_view key) {
  std::string nearest;
  std::size_t best = kNearDistance + 1;
  for (const KeySpec* spec : ChildrenOf(parent)) {
    const std::string_view name = ChildName(*spec, parent);
    const std::size_t distance = EditDistance(key, name);
    if (distance < best && distance < name.size()) {
      best = distance;
      nearest = name;
    }
  }
  return nearest;
}

Result<ByteCount> ParseBytes(std::string_view text) {
  static constexpr Unit kUnits[] = {{"B", 1}, {"KiB", kKiB}, {"MiB", kMiB}, {"GiB", kGiB}};
  const auto bytes = ParseWithUnit(text, kUnits);
  if (!bytes.has_value() || *bytes > kMaxBytes) {
    return InvalidArgument(StrCat("\"", text, "\" is no size"), "a whole number and B, KiB, MiB or GiB, like 4MiB");
  }
  return *bytes;
}

Result<Duration> ParseDuration(std::string_view text) {
  static constexpr Unit kUnits[] = {{"ms", 1}, {"s", 1000}, {"min", 60'000}, {"h", 3'600'000}};
  const auto millis = ParseWithUnit(text, kUnits);
  if (!millis.has_value() || static_cast<double>(*millis) > kMaxSeconds * 1000) {
    return InvalidArgument(StrCat("\"", text, "\" is no time"), "a whole number and ms, s, min or h, like 60s");
  }
  return Duration(std::chrono::milliseconds(*millis));
}

}  // namespace refit::config

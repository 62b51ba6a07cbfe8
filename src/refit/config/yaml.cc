// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0

#include <yaml-cpp/yaml.h>

#include <algorithm>
#include <utility>

#include "refit/base/str.h"
#include "refit/config/node.h"

namespace refit::config {
namespace {

constexpr int kMaxDepth = 32;

Status At(int line, std::string_view what, std::string_view remedy) {
  return InvalidArgument(StrCat("line ", line, ": ", what), std::string(remedy));
}

Result<Node> Convert(const YAML::Node& yaml, int depth) {
  Node node;
  node.line = yaml.Mark().line + 1;
  if (depth > kMaxDepth) {
    return At(node.line, StrCat("nested deeper than ", kMaxDepth), "no key of refit is that deep");
  }
  switch (yaml.Type()) {
    case YAML::NodeType::Undefined:
    case YAML::NodeType::Null: return node;
    case YAML::NodeType::Scalar:
      node.kind = Node::Kind::kScalar;
      node.text = yaml.Scalar();
      return node;
    case YAML::NodeType::Sequence:
      node.kind = Node::Kind::kList;
      for (const YAML::Node& item : yaml) {
        REFIT_ASSIGN_OR_RETURN(Node converted, Convert(item, depth + 1));
        node.items.push_back(std::move(converted));
      }
      return node;
    case YAML::NodeType::Map:
      node.kind = Node::Kind::kMap;
      for (const auto& entry : yaml) {
        if (!entry.first.IsScalar()) {
          return At(entry.first.Mark().line + 1, "a key that is not a word", "write it as key: value");
        }
        const std::string& key = entry.first.Scalar();
        if (node.Find(key) != nullptr) {
          return At(entry.first.Mark().line + 1, StrCat("key ", key, " is given twice"), "remove one of them");
        }
        REFIT_ASSIGN_OR_RETURN(Node converted, Convert(entry.second, depth + 1));
        converted.line = entry.first.Mark().line + 1;
        node.Add(key, std::move(converted));
      }
      return node;
  }
  return node;
}

}  // namespace

const Node* Node::Find(std::string_view key) const {
  const auto found = std::find(keys.begin(), keys.end(), key);
  return found == keys.end() ? nullptr : &items[static_cast<std::size_t>(found - keys.begin())];
}
Node* Node::Find(std::string_view key) { return const_cast<Node*>(std::as_const(*this).Find(key)); }

Node& Node::Add(std::string key, Node value) {
  kind = Kind::kMap;
  keys.push_back(std::move(key));
  items.push_back(std::move(value));
  return items.back();
}

Result<Node> ParseYaml(std::string_view text) {
  // yaml-cpp shares aliased nodes, so a few lines could stand for millions of values.
  try {
    const std::vector<YAML::Node> documents = YAML::LoadAll(std::string(text));
    if (documents.size() > 1) {
      return InvalidArgument(StrCat(documents.size(), " YAML documents in one file"), "keep one; remove the lines ---");
    }
    return documents.empty() ? Node{} : Convert(documents.front(), 0);
  } catch (const YAML::Exception& error) {
    return At(error.mark.line + 1, StrCat("not YAML: ", error.msg),
              "indent with spaces, quote text that holds a colon");
  }
}

}  // namespace refit::config

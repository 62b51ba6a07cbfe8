// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0

#include "refit/checkpoint/tokenizer.h"

#include <algorithm>
#include <array>
#include <filesystem>
#include <system_error>
#include <utility>

#include <fmt/format.h>

#include "refit/checkpoint/byte_pairs.h"
#include "refit/checkpoint/file.h"
#include "refit/checkpoint/json.h"
#include "refit/checkpoint/pre_tokenizer.h"
#include "refit/checkpoint/utf8.h"

namespace refit::checkpoint {
namespace {

using Kind = JsonValue::Kind;

constexpr ByteCount kTokenizerMax = 100 * kMiB;
constexpr const char* kRemedy = "use a byte-level BPE tokenizer of the GPT-2, Llama-3, Qwen or SmolLM kind";

struct AddedToken {
  TokenId id = kNoToken;
  std::string content;
  Tokenizer::SpecialTokens handling = Tokenizer::SpecialTokens::kKeep;  // kSkip: a special one, skipped on demand
};

bool Flag(const JsonValue& node, std::string_view key) {
  const JsonValue* value = node.Find(key);
  return value != nullptr && value->is(Kind::kBool) && value->boolean;
}

Result<AddedToken> ReadAddedToken(const JsonValue& node) {
  const JsonValue* id = node.Find("id");
  const JsonValue* content = node.Find("content");
  if (id == nullptr || !id->is(Kind::kInteger) || id->integer < 0 || id->integer > kTokenMax || content == nullptr ||
      content->text.empty()) {
    return InvalidArgument(fmt::format("added token {} lacks an id or its content", ToString(node)), kRemedy);
  }
  for (const char* key : {"single_word", "lstrip", "rstrip"}) {
    if (Flag(node, key)) {
      return Unimplemented(fmt::format("added token {} has {}, which is not supported", Quote(content->text), key),
                           kRemedy);
    }
  }
  return AddedToken{static_cast<TokenId>(id->integer), content->text,
                    Flag(node, "special") ? Tokenizer::SpecialTokens::kSkip : Tokenizer::SpecialTokens::kKeep};
}

// Nothing, or NFC. Text is taken to be in NFC already, as nearly all text is: normalising needs Unicode's tables.
Status CheckNormalizer(const JsonValue* node) {
  if (node == nullptr || node->is(Kind::kNull)) {
    return OkStatus();
  }
  if (const JsonValue* type = node->Find("type"); type != nullptr && type->text == "NFC") {
    return OkStatus();
  }
  return Unimplemented(fmt::format("normalizer {} is not supported", ToString(*node)), kRemedy);
}

Status CheckDecoder(const JsonValue* node) {
  const JsonValue* type = node == nullptr ? nullptr : node->Find("type");
  if (type == nullptr || type->text != "ByteLevel") {
    return Unimplemented(fmt::format("decoder {} is not supported", node == nullptr ? "null" : ToString(*node)),
                         kRemedy);
  }
  return OkStatus();
}

// The system message that a chat template puts before a conversation that has none, as SmolLM2's does; else nothing.
std::string DefaultSystemMessage(const std::string& chat_template) {
  constexpr std::string_view kCondition = "messages[0]['role'] != 'system' %}{{ '";
  const std::size_t condition = chat_template.find(kCondition);
  if (condition == std::string::npos) {
    return {};
  }
  const std::size_t begin = condition + kCondition.size();
  const std::size_t end = chat_template.find("' }}", begin);
  const std::string_view written =
      std::string_view(chat_template).substr(begin, end == std::string::npos ? 0 : end - begin);
  if (!written.starts_with("<|im_start|>system")) {
    return {};
  }
  std::string message;
  for (std::size_t at = 0; at < written.size(); ++at) {
    const bool newline = written.substr(at, 2) == "\\n";  // as Jinja escapes it
    message += newline ? '\n' : written[at];
    at += newline ? 1 : 0;
  }
  return message;
}

}  // namespace

struct Tokenizer::Impl {
  Impl(PreTokenizer words_in, BytePairs pairs_in) : words(std::move(words_in)), pairs(std::move(pairs_in)) {}

  PreTokenizer words;
  BytePairs pairs;
  std::vector<AddedToken> added;  // longest first
  std::array<std::vector<std::size_t>, 256> added_by_first_byte;
  std::vector<const AddedToken*> added_by_id;  // null where an id is of the vocabulary
  std::string system_message;

  void IndexAddedTokens() {
    std::stable_sort(added.begin(), added.end(),
                     [](const AddedToken& a, const AddedToken& b) { return a.content.size() > b.content.size(); });
    for (std::size_t i = 0; i < added.size(); ++i) {
      added_by_first_byte[static_cast<unsigned char>(added[i].content[0])].push_back(i);
      const auto id = static_cast<std::size_t>(added[i].id);
      added_by_id.resize(std::max(added_by_id.size(), id + 1));
      added_by_id[id] = &added[i];
    }
  }
  // The longest added token that text begins with.
  const AddedToken* AddedAt(std::string_view text) const {
    for (const std::size_t index : added_by_first_byte[static_cast<unsigned char>(text[0])]) {
      if (text.starts_with(added[index].content)) {
        return &added[index];
      }
    }
    return nullptr;
  }
  Status EncodePlain(std::string_view text, std::vector<TokenId>& tokens) const {
    std::vector<std::string_view> pieces;
    REFIT_RETURN_IF_ERROR(words.Split(text, pieces));
    for (const std::string_view piece : pieces) {
      pairs.Encode(piece, tokens);
    }
    return OkStatus();
  }
};

Tokenizer::Tokenizer() = default;
Tokenizer::~Tokenizer() = default;

Result<std::unique_ptr<Tokenizer>> Tokenizer::Parse(std::string_view text, const std::string& chat_template) {
  REFIT_ASSIGN_OR_RETURN(const JsonValue tree, ParseJson(text));
  const JsonValue* model = tree.Find("model");
  const JsonValue* pre_tokenizer = tree.Find("pre_tokenizer");
  if (model == nullptr || pre_tokenizer == nullptr) {
    return InvalidArgument("it has no model or no pre_tokenizer", kRemedy);
  }
  REFIT_RETURN_IF_ERROR(CheckNormalizer(tree.Find("normalizer")));
  REFIT_RETURN_IF_ERROR(CheckDecoder(tree.Find("decoder")));
  REFIT_ASSIGN_OR_RETURN(PreTokenizer words, PreTokenizer::Make(*pre_tokenizer));
  REFIT_ASSIGN_OR_RETURN(BytePairs pairs, BytePairs::Make(*model));
  std::unique_ptr<Tokenizer> tokenizer(new Tokenizer);
  tokenizer->impl_ = std::make_unique<Impl>(std::move(words), std::move(pairs));
  if (const JsonValue* added = tree.Find("added_tokens"); added != nullptr) {
    for (const JsonValue& node : added->items) {
      REFIT_ASSIGN_OR_RETURN(AddedToken token, ReadAddedToken(node));
      tokenizer->impl_->added.push_back(std::move(token));
    }
  }
  tokenizer->impl_->IndexAddedTokens();
  tokenizer->impl_->system_message = DefaultSystemMessage(chat_template);
  return tokenizer;
}

Result<std::unique_ptr<Tokenizer>> Tokenizer::Open(const std::string& folder) {
  const std::string path = folder + "/tokenizer.json";
  std::error_code error;
  if (!std::filesystem::exists(path, error)) {
    return NotFound(fmt::format("{} has no tokenizer.json: text cannot be turned into tokens", folder),
                    "use token ids, or give a checkpoint with its tokenizer");
  }
  REFIT_ASSIGN_OR_RETURN(const std::string text, ReadFile(path, kTokenizerMax));
  std::string chat_template;
  if (const auto config_text = ReadFile(folder + "/tokenizer_config.json", kTokenizerMax); config_text.ok()) {
    if (const auto config = ParseJson(*config_text); config.ok()) {
      const JsonValue* value = config->Find("chat_template");
      chat_template = value == nullptr ? std::string() : value->text;
    }
  }
  auto tokenizer = Parse(text, chat_template);
  if (!tokenizer.ok()) {
    return tokenizer.status().WithContext(path);
  }
  return tokenizer;
}

Result<std::vector<TokenId>> Tokenizer::Encode(std::string_view text) const {
  if (const std::size_t valid = ValidUtf8Size(text); valid != text.size()) {
    return InvalidArgument(fmt::format("the text is no UTF-8 at byte {}", valid), "give UTF-8 text");
  }
  std::vector<TokenId> tokens;
  std::size_t plain = 0;
  for (std::size_t at = 0; at < text.size();) {
    const AddedToken* added = impl_->AddedAt(text.substr(at));
    if (added == nullptr) {
      ++at;
      continue;
    }
    REFIT_RETURN_IF_ERROR(impl_->EncodePlain(text.substr(plain, at - plain), tokens));
    tokens.push_back(added->id);
    at += added->content.size();
    plain = at;
  }
  REFIT_RETURN_IF_ERROR(impl_->EncodePlain(text.substr(plain), tokens));
  return tokens;
}

std::string Tokenizer::Decode(std::span<const TokenId> tokens, SpecialTokens special) const {
  std::string bytes;
  for (const TokenId token : tokens) {
    const auto id = static_cast<std::size_t>(token);  // a negative one is beyond every table
    if (id < impl_->added_by_id.size() && impl_->added_by_id[id] != nullptr) {
      const AddedToken& added = *impl_->added_by_id[id];
      if (special == SpecialTokens::kKeep || added.handling == SpecialTokens::kKeep) {
        bytes += added.content;
      }
    } else if (id < impl_->pairs.token_bytes().size()) {
      bytes += impl_->pairs.token_bytes()[id];
    }
  }
  return ReplaceInvalidUtf8(bytes);
}

std::string Tokenizer::ChatPrompt(std::string_view user) const {
  return fmt::format("{}<|im_start|>user\n{}<|im_end|>\n<|im_start|>assistant\n", impl_->system_message, user);
}

}  // namespace refit::checkpoint

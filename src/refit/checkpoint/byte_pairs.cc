// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0

#include "refit/checkpoint/byte_pairs.h"

#include <algorithm>
#include <optional>
#include <queue>
#include <tuple>
#include <utility>

#include <fmt/format.h>

#include "refit/checkpoint/utf8.h"

namespace refit::checkpoint {
namespace {

using Kind = JsonValue::Kind;

constexpr const char* kRemedy = "use a byte-level BPE tokenizer of the GPT-2, Llama-3, Qwen or SmolLM kind";
constexpr std::size_t kNone = static_cast<std::size_t>(-1);

// GPT-2's alphabet: printable Latin-1 stands for itself, the other bytes get letters from U+0100 on.
bool StandsForItself(unsigned byte) {
  return (byte >= 0x21 && byte <= 0x7e) || (byte >= 0xa1 && byte <= 0xac) || (byte >= 0xae && byte <= 0xff);
}

// Index: letter. The byte it stands for; -1 for none.
std::array<int, 512> MakeByteOfLetter() {
  std::array<int, 512> table{};
  table.fill(-1);
  std::size_t next = 0x100;
  for (unsigned byte = 0; byte < 256; ++byte) {
    table[StandsForItself(byte) ? byte : next++] = static_cast<int>(byte);
  }
  return table;
}

std::uint64_t PackPair(TokenId left, TokenId right) {
  return (static_cast<std::uint64_t>(static_cast<std::uint32_t>(left)) << 32) | static_cast<std::uint32_t>(right);
}

TokenId IdOf(const JsonValue& vocabulary, std::string_view token) {
  const JsonValue* id = vocabulary.Find(token);
  return id == nullptr ? kNoToken : static_cast<TokenId>(id->integer);
}

// "a b", or ["a", "b"] in newer files.
std::optional<std::pair<std::string_view, std::string_view>> ReadMerge(const JsonValue& merge) {
  if (merge.is(Kind::kArray) && merge.items.size() == 2 && merge.items[0].is(Kind::kString) &&
      merge.items[1].is(Kind::kString)) {
    return std::pair<std::string_view, std::string_view>(merge.items[0].text, merge.items[1].text);
  }
  const std::string_view text = merge.text;
  const std::size_t space = text.find(' ');
  if (!merge.is(Kind::kString) || space == std::string_view::npos) {
    return std::nullopt;
  }
  return std::pair(text.substr(0, space), text.substr(space + 1));
}

// Keys that would change the result, where they are not null, false or empty.
Status RefuseVariants(const JsonValue& model) {
  if (const JsonValue* type = model.Find("type"); type != nullptr && type->text != "BPE") {
    return Unimplemented(fmt::format("tokenizer model {} is not supported", ToString(*type)), kRemedy);
  }
  for (const char* key : {"dropout", "continuing_subword_prefix", "end_of_word_suffix", "byte_fallback"}) {
    const JsonValue* value = model.Find(key);
    if (value != nullptr && (value->boolean || value->number > 0 || !value->text.empty())) {
      return Unimplemented(fmt::format("tokenizer model: {} is {}, which is not supported", key, ToString(*value)),
                           kRemedy);
    }
  }
  return OkStatus();
}

}  // namespace

std::string BytesOfToken(std::string_view token) {
  static const std::array<int, 512> kByteOfLetter = MakeByteOfLetter();
  std::string bytes;
  for (std::size_t at = 0; at < token.size();) {
    const Utf8Step step = FirstUtf8(token.substr(at));
    const char32_t letter = step.code_point.value_or(kByteOfLetter.size());
    if (letter >= kByteOfLetter.size() || kByteOfLetter[letter] < 0) {
      return std::string(token);
    }
    bytes.push_back(static_cast<char>(kByteOfLetter[letter]));
    at += step.size;
  }
  return bytes;
}

Result<BytePairs> BytePairs::Make(const JsonValue& model) {
  REFIT_RETURN_IF_ERROR(RefuseVariants(model));
  const JsonValue* vocabulary = model.Find("vocab");
  const JsonValue* merges = model.Find("merges");
  if (vocabulary == nullptr || !vocabulary->is(Kind::kObject) || merges == nullptr || !merges->is(Kind::kArray)) {
    return InvalidArgument("tokenizer model has no vocab or no merges", kRemedy);
  }
  BytePairs made;
  REFIT_RETURN_IF_ERROR(made.AddVocabulary(*vocabulary));
  REFIT_RETURN_IF_ERROR(made.AddMerges(*merges, *vocabulary));
  const JsonValue* unknown = model.Find("unk_token");
  const bool complete =
      std::find(made.byte_tokens_.begin(), made.byte_tokens_.end(), kNoToken) == made.byte_tokens_.end();
  if (unknown != nullptr && !unknown->is(Kind::kNull) && !complete) {
    return Unimplemented(fmt::format("tokenizer model: unk_token is {}, and bytes are missing", ToString(*unknown)),
                         kRemedy);
  }
  const JsonValue* ignore = model.Find("ignore_merges");
  made.ignore_merges_ = ignore != nullptr && ignore->boolean;
  for (std::size_t id = 0; made.ignore_merges_ && id < made.token_bytes_.size(); ++id) {
    made.whole_words_.emplace(made.token_bytes_[id], static_cast<TokenId>(id));
  }
  return made;
}

Status BytePairs::AddVocabulary(const JsonValue& vocabulary) {
  byte_tokens_.fill(kNoToken);
  for (std::size_t i = 0; i < vocabulary.keys.size(); ++i) {
    const JsonValue& id = vocabulary.items[i];
    const std::string& token = vocabulary.keys[i];
    if (token.empty() || !id.is(Kind::kInteger) || id.integer < 0 || id.integer > kTokenMax) {
      return InvalidArgument(fmt::format("token {} has the id {}", Quote(token), ToString(id)), kRemedy);
    }
    const auto index = static_cast<std::size_t>(id.integer);
    if (index >= token_bytes_.size()) {
      token_bytes_.resize(index + 1);
    }
    if (!token_bytes_[index].empty()) {
      return InvalidArgument(
          fmt::format("tokens {} and {} have the same id {}", Quote(token_bytes_[index]), Quote(token), index),
          kRemedy);
    }
    token_bytes_[index] = BytesOfToken(token);
    if (token_bytes_[index].size() == 1) {
      byte_tokens_[static_cast<unsigned char>(token_bytes_[index][0])] = static_cast<TokenId>(index);
    }
  }
  return OkStatus();
}

Status BytePairs::AddMerges(const JsonValue& merges, const JsonValue& vocabulary) {
  merges_.reserve(merges.items.size());
  for (const JsonValue& merge : merges.items) {
    const auto pair = ReadMerge(merge);
    if (!pair) {
      return InvalidArgument(fmt::format("merge {} is no pair of tokens", ToString(merge)), kRemedy);
    }
    const TokenId left = IdOf(vocabulary, pair->first);
    const TokenId right = IdOf(vocabulary, pair->second);
    const TokenId merged = IdOf(vocabulary, std::string(pair->first).append(pair->second));
    if (left == kNoToken || right == kNoToken || merged == kNoToken) {
      return InvalidArgument(fmt::format("merge {} has parts that are not in the vocabulary", ToString(merge)),
                             kRemedy);
    }
    merges_.insert_or_assign(PackPair(left, right), Merge{static_cast<std::uint32_t>(merges_.size()), merged});
  }
  return OkStatus();
}

const BytePairs::Merge* BytePairs::FindMerge(TokenId left, TokenId right) const {
  const auto found = merges_.find(PackPair(left, right));
  return found == merges_.end() ? nullptr : &found->second;
}

void BytePairs::Encode(std::string_view word, std::vector<TokenId>& tokens) const {
  if (ignore_merges_) {
    if (const auto whole = whole_words_.find(std::string(word)); whole != whole_words_.end()) {
      tokens.push_back(whole->second);
      return;
    }
  }
  // A linked list of what is left of the word, and the merges that were possible at some time, best first: those that
  // no longer fit are passed over. O(n log n), for words of a megabyte too.
  struct Symbol {
    TokenId token = kNoToken;
    std::size_t previous = kNone;
    std::size_t next = kNone;
  };
  struct Candidate {
    std::uint32_t rank = 0;
    std::size_t at = 0;  // the left symbol
    bool operator>(const Candidate& other) const { return std::tie(rank, at) > std::tie(other.rank, other.at); }
  };
  std::vector<Symbol> symbols;
  for (const char c : word) {
    const TokenId token = byte_tokens_[static_cast<unsigned char>(c)];
    if (token != kNoToken) {
      symbols.push_back({token, symbols.empty() ? kNone : symbols.size() - 1, symbols.size() + 1});
    }
  }
  if (symbols.empty()) {
    return;
  }
  symbols.back().next = kNone;
  std::priority_queue<Candidate, std::vector<Candidate>, std::greater<>> queue;
  const auto merge_at = [&](std::size_t at) -> const Merge* {
    if (at == kNone || symbols[at].token == kNoToken || symbols[at].next == kNone) {
      return nullptr;
    }
    return FindMerge(symbols[at].token, symbols[symbols[at].next].token);
  };
  const auto offer = [&](std::size_t at) {
    if (const Merge* merge = merge_at(at)) {
      queue.push({merge->rank, at});
    }
  };
  for (std::size_t at = 0; at < symbols.size(); ++at) {
    offer(at);
  }
  while (!queue.empty()) {
    const Candidate best = queue.top();
    queue.pop();
    const Merge* merge = merge_at(best.at);
    if (merge == nullptr || merge->rank != best.rank) {
      continue;
    }
    Symbol& left = symbols[best.at];
    Symbol& right = symbols[left.next];
    left.token = merge->merged;
    left.next = right.next;
    right.token = kNoToken;
    if (left.next != kNone) {
      symbols[left.next].previous = best.at;
    }
    offer(left.previous);
    offer(best.at);
  }
  for (std::size_t at = 0; at != kNone; at = symbols[at].next) {
    tokens.push_back(symbols[at].token);
  }
}

}  // namespace refit::checkpoint

// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0

#include "refit/checkpoint/pre_tokenizer.h"

#include <string>

#include <fmt/format.h>

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

namespace refit::checkpoint {
namespace {

using Kind = JsonValue::Kind;

// GPT-2's words, which ByteLevel means by use_regex.
constexpr std::string_view kByteLevelExpression =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";
constexpr std::uint32_t kMatchLimit = 1'000'000;  // backtracking steps: an expression from a file must not run for ever
constexpr const char* kRemedy = "use a byte-level BPE tokenizer of the GPT-2, Llama-3, Qwen or SmolLM kind";

bool Flag(const JsonValue& node, std::string_view key, bool fallback) {
  const JsonValue* value = node.Find(key);
  return value != nullptr && value->is(Kind::kBool) ? value->boolean : fallback;
}

std::string_view Text(const JsonValue& node, std::string_view key) {
  const JsonValue* value = node.Find(key);
  return value != nullptr ? std::string_view(value->text) : std::string_view();
}

Status Unsupported(const JsonValue& node) {
  return Unimplemented(fmt::format("pre_tokenizer {} is not supported", ToString(node)), kRemedy);
}

}  // namespace

struct PreTokenizer::Pattern {
  struct FreeCode {
    void operator()(pcre2_code* code) const { pcre2_code_free(code); }
  };
  struct FreeContext {
    void operator()(pcre2_match_context* context) const { pcre2_match_context_free(context); }
  };
  struct FreeMatch {
    void operator()(pcre2_match_data* match) const { pcre2_match_data_free(match); }
  };

  std::unique_ptr<pcre2_code, FreeCode> code;
  std::unique_ptr<pcre2_match_context, FreeContext> context;

  // Matches become words, and so does what lies between them.
  Status Cut(std::string_view text, std::vector<std::string_view>& words) const {
    const std::unique_ptr<pcre2_match_data, FreeMatch> match(pcre2_match_data_create(1, nullptr));
    const auto add = [&](std::size_t begin, std::size_t end) {
      if (end > begin) {
        words.push_back(text.substr(begin, end - begin));
      }
    };
    std::size_t done = 0;
    std::size_t from = 0;
    while (from < text.size()) {
      const int found = pcre2_match(code.get(), reinterpret_cast<PCRE2_SPTR>(text.data()), text.size(), from,
                                    PCRE2_NO_UTF_CHECK | PCRE2_NOTEMPTY, match.get(), context.get());
      if (found == PCRE2_ERROR_NOMATCH) {
        break;
      }
      if (found < 0) {
        return ResourceExhausted(
            fmt::format("the tokenizer's regular expression gave up on this text (PCRE2 {})", found),
            "shorten the text");
      }
      const PCRE2_SIZE* bounds = pcre2_get_ovector_pointer(match.get());
      if (bounds[0] < done || bounds[1] <= bounds[0]) {
        return Unimplemented("the tokenizer's regular expression moves its own match (\\K)", kRemedy);
      }
      add(done, bounds[0]);
      add(bounds[0], bounds[1]);
      done = bounds[1];
      from = done;
    }
    add(done, text.size());
    return OkStatus();
  }
};

PreTokenizer::PreTokenizer() = default;
PreTokenizer::PreTokenizer(PreTokenizer&&) noexcept = default;
PreTokenizer& PreTokenizer::operator=(PreTokenizer&&) noexcept = default;
PreTokenizer::~PreTokenizer() = default;

Result<PreTokenizer> PreTokenizer::Make(const JsonValue& node) {
  PreTokenizer made;
  REFIT_RETURN_IF_ERROR(made.Add(node));
  if (!made.byte_level_) {
    return Unsupported(node);
  }
  return made;
}

Status PreTokenizer::Add(const JsonValue& node) {
  const std::string_view type = Text(node, "type");
  if (type == "Sequence") {
    const JsonValue* parts = node.Find("pretokenizers");
    if (parts == nullptr || !parts->is(Kind::kArray)) {
      return Unsupported(node);
    }
    for (const JsonValue& part : parts->items) {
      REFIT_RETURN_IF_ERROR(Add(part));
    }
    return OkStatus();
  }
  if (byte_level_) {  // ByteLevel rewrites the text, so that what follows would see other letters
    return Unsupported(node);
  }
  if (type == "ByteLevel" && !Flag(node, "add_prefix_space", true)) {
    byte_level_ = true;
    return Flag(node, "use_regex", true) ? AddPattern(kByteLevelExpression) : OkStatus();
  }
  if (type == "Digits") {
    return AddPattern(Flag(node, "individual_digits", false) ? R"(\p{N})" : R"(\p{N}+)");
  }
  const JsonValue* pattern = node.Find("pattern");
  if (type == "Split" && pattern != nullptr && pattern->Find("Regex") != nullptr && !Flag(node, "invert", false) &&
      Text(node, "behavior") == "Isolated") {
    return AddPattern(Text(*pattern, "Regex"));
  }
  return Unsupported(node);
}

Status PreTokenizer::AddPattern(std::string_view expression) {
  int error = 0;
  PCRE2_SIZE position = 0;
  auto pattern = std::make_unique<Pattern>();
  pattern->code.reset(pcre2_compile(reinterpret_cast<PCRE2_SPTR>(expression.data()), expression.size(),
                                    PCRE2_UTF | PCRE2_UCP | PCRE2_NEVER_BACKSLASH_C, &error, &position, nullptr));
  if (pattern->code == nullptr) {
    return InvalidArgument(fmt::format("pre_tokenizer has the bad regular expression {} (PCRE2 {} at {})",
                                       Quote(expression.substr(0, 80)), error, position),
                           kRemedy);
  }
  pattern->context.reset(pcre2_match_context_create(nullptr));
  pcre2_set_match_limit(pattern->context.get(), kMatchLimit);
  patterns_.push_back(std::move(pattern));
  return OkStatus();
}

Status PreTokenizer::Split(std::string_view text, std::vector<std::string_view>& words) const {
  std::vector<std::string_view> pieces = {text};
  for (const auto& pattern : patterns_) {
    std::vector<std::string_view> smaller;
    for (const std::string_view piece : pieces) {
      REFIT_RETURN_IF_ERROR(pattern->Cut(piece, smaller));
    }
    pieces = std::move(smaller);
  }
  words.insert(words.end(), pieces.begin(), pieces.end());
  return OkStatus();
}

}  // namespace refit::checkpoint

// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0

#include "refit/checkpoint/tokenizer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <iterator>

#include "refit/checkpoint/json.h"
#include "refit/checkpoint/utf8.h"
#include "tests/support/temp_folder.h"

namespace refit::checkpoint {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using Special = Tokenizer::SpecialTokens;

constexpr std::string_view kSmolWords =
    R"({"type": "Sequence", "pretokenizers": [{"type": "Digits", "individual_digits": true},
        {"type": "ByteLevel", "add_prefix_space": false, "use_regex": true}]})";
constexpr std::string_view kQwenWords =
    R"({"type": "Sequence", "pretokenizers": [)"
    R"({"type": "Split", "behavior": "Isolated", "invert": false, "pattern": {"Regex": )"
    R"("(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}|)"
    R"( ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"}}, )"
    R"({"type": "ByteLevel", "add_prefix_space": false, "use_regex": false}]})";
constexpr std::string_view kModel =
    R"({"type": "BPE", "vocab": {"<|end|>": 0, "a": 1, "b": 2, "c": 3, "Ġ": 4, "ab": 5, "abc": 6, "Ġa": 7,
        "1": 8, "Ã": 9, "©": 10, "bc": 11, "Ġabc": 12, "aa": 13, "11": 14, "Ċ": 15},
        "merges": [["a", "b"], "b c", ["ab", "c"], "Ġ a", "a a", "1 1"]})";

std::string MakeJson(std::string_view words, std::string_view model, std::string_view more = "") {
  std::string text =
      R"({"version": "1.0", "normalizer": null, "decoder": {"type": "ByteLevel"}, "added_tokens": [)"
      R"({"id": 0, "content": "<|end|>", "special": true}, {"id": 20, "content": "<|end", "special": false}])";
  text.append(more).append(", \"pre_tokenizer\": ").append(words).append(", \"model\": ").append(model).append("}");
  return text;
}

std::unique_ptr<Tokenizer> MakeTokenizer(std::string_view words, std::string_view model = kModel) {
  auto tokenizer = Tokenizer::Parse(MakeJson(words, model), "");
  EXPECT_TRUE(tokenizer.ok()) << tokenizer.status().ToString();
  return tokenizer.ok() ? *std::move(tokenizer) : nullptr;
}

std::vector<TokenId> Encode(const Tokenizer& tokenizer, std::string_view text) {
  auto tokens = tokenizer.Encode(text);
  EXPECT_TRUE(tokens.ok()) << tokens.status().ToString();
  return tokens.ok() ? *tokens : std::vector<TokenId>();
}

Status Refusal(std::string_view words, std::string_view model = kModel, std::string_view more = "") {
  return Tokenizer::Parse(MakeJson(words, model, more), "").status();
}

TEST(TokenizerTest, MergesTheLowestRankFirstAndTheLeftmostOfEqualOnes) {
  const auto tokenizer = MakeTokenizer(kSmolWords);
  EXPECT_THAT(Encode(*tokenizer, "abc"), ElementsAre(6));
  EXPECT_THAT(Encode(*tokenizer, "bcabc"), ElementsAre(11, 6));
  EXPECT_THAT(Encode(*tokenizer, "aaa"), ElementsAre(13, 1));
  EXPECT_THAT(Encode(*tokenizer, ""), IsEmpty());
}

TEST(TokenizerTest, ASpaceBelongsToTheWordAfterIt) {
  const auto tokenizer = MakeTokenizer(kSmolWords);
  EXPECT_THAT(Encode(*tokenizer, "a a"), ElementsAre(1, 7));
  EXPECT_THAT(Encode(*tokenizer, "a  a"), ElementsAre(1, 4, 7));
}

TEST(TokenizerTest, DigitsStandAloneOnlyWhereThePreTokenizerSaysSo) {
  EXPECT_THAT(Encode(*MakeTokenizer(kSmolWords), "111"), ElementsAre(8, 8, 8));
  EXPECT_THAT(Encode(*MakeTokenizer(kQwenWords), "11"), ElementsAre(8, 8));
  EXPECT_THAT(Encode(*MakeTokenizer(R"({"type": "ByteLevel", "add_prefix_space": false})"), "111"), ElementsAre(14, 8));
}

TEST(TokenizerTest, QwensExpressionKeepsNewlinesApart) {
  EXPECT_THAT(Encode(*MakeTokenizer(kQwenWords), "a\n\nab"), ElementsAre(1, 15, 15, 5));
}

TEST(TokenizerTest, TheLongestAddedTokenInTheTextBecomesItsId) {
  const auto tokenizer = MakeTokenizer(kSmolWords);
  EXPECT_THAT(Encode(*tokenizer, "a<|end|>b"), ElementsAre(1, 0, 2));
  EXPECT_THAT(Encode(*tokenizer, "a<|endb"), ElementsAre(1, 20, 2));
}

TEST(TokenizerTest, IgnoredMergesGiveAWholeWordOfTheVocabulary) {
  constexpr std::string_view kWhole =
      R"({"type": "BPE", "ignore_merges": true, "vocab": {"a": 0, "b": 1, "ab": 2}, "merges": []})";
  const auto tokenizer = MakeTokenizer(kSmolWords, kWhole);
  EXPECT_THAT(Encode(*tokenizer, "ab"), ElementsAre(2));
  EXPECT_THAT(Encode(*tokenizer, "aba"), ElementsAre(0, 1, 0));
}

TEST(TokenizerTest, DecodesBytesAcrossTokensAndReplacesCutCharacters) {
  const auto tokenizer = MakeTokenizer(kSmolWords);
  EXPECT_EQ(tokenizer->Decode(std::vector<TokenId>{9, 10, 12}, Special::kKeep), "é abc");
  EXPECT_EQ(tokenizer->Decode(std::vector<TokenId>{10, 1, 9}, Special::kKeep), "\uFFFDa\uFFFD");
}

TEST(TokenizerTest, SkipsSpecialTokensOnDemandAndUnknownIdsAlways) {
  const auto tokenizer = MakeTokenizer(kSmolWords);
  const std::vector<TokenId> tokens = {1, 0, 20, 999999, -1, 2};
  EXPECT_EQ(tokenizer->Decode(tokens, Special::kKeep), "a<|end|><|endb");
  EXPECT_EQ(tokenizer->Decode(tokens, Special::kSkip), "a<|endb");
}

TEST(TokenizerTest, AWordOfAMegabyteTakesNoQuadraticTime) {
  const auto tokenizer = MakeTokenizer(kSmolWords);
  EXPECT_EQ(Encode(*tokenizer, std::string(1'000'000, 'a')).size(), 500'000U);
}

TEST(TokenizerTest, TextThatIsNoUtf8IsRefusedAtItsByte) {
  const auto tokens = MakeTokenizer(kSmolWords)->Encode("ab\xff");
  EXPECT_EQ(tokens.status().ToString(), "INVALID_ARGUMENT: the text is no UTF-8 at byte 2 (give UTF-8 text)");
}

TEST(TokenizerTest, ChatPromptHasTheTemplatesOwnSystemMessage) {
  const std::string with_system =
      "{% if loop.first and messages[0]['role'] != 'system' %}{{ '<|im_start|>system\\nBe kind<|im_end|>\n' }}{% endif "
      "%}";
  auto tokenizer = Tokenizer::Parse(MakeJson(kSmolWords, kModel), with_system);
  ASSERT_TRUE(tokenizer.ok());
  EXPECT_EQ((*tokenizer)->ChatPrompt("Hi"),
            "<|im_start|>system\nBe kind<|im_end|>\n<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n");
  EXPECT_EQ(MakeTokenizer(kSmolWords)->ChatPrompt("Hi"), "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n");
}

TEST(TokenizerTest, WhatItCannotDoIsRefusedByName) {
  EXPECT_THAT(Refusal(R"({"type": "Metaspace"})").message(), HasSubstr("Metaspace"));
  EXPECT_THAT(Refusal(R"({"type": "ByteLevel", "add_prefix_space": true})").message(), HasSubstr("add_prefix_space"));
  EXPECT_THAT(Refusal(R"({"type": "Digits"})").message(), HasSubstr("Digits"));
  EXPECT_THAT(Refusal(R"({"type": "Split", "behavior": "Isolated", "pattern": {"Regex": "("}})").message(),
              HasSubstr("bad regular expression"));
  EXPECT_THAT(Refusal(kSmolWords, R"({"type": "WordPiece", "vocab": {}})").message(), HasSubstr("WordPiece"));
  EXPECT_THAT(Refusal(kSmolWords, R"({"byte_fallback": true, "vocab": {}, "merges": []})").message(),
              HasSubstr("byte_fallback"));
  EXPECT_THAT(Refusal(kSmolWords, R"({"unk_token": "?", "vocab": {"a": 0}, "merges": []})").message(),
              HasSubstr("unk_token"));
  EXPECT_THAT(Refusal(kSmolWords, R"({"vocab": {"a": 0}, "merges": ["a b"]})").message(), HasSubstr("a b"));
  EXPECT_THAT(Refusal(kSmolWords, R"({"vocab": {"a": 0, "b": 0}, "merges": []})").message(), HasSubstr("same id 0"));
  EXPECT_THAT(Refusal(kSmolWords, R"({"vocab": {"a": 99999999999}, "merges": []})").message(),
              HasSubstr("99999999999"));
}

TEST(TokenizerTest, AFolderWithoutATokenizerIsNotFound) {
  const test::TempFolder folder;
  const Status status = Tokenizer::Open(folder.path()).status();
  EXPECT_EQ(status.code(), StatusCode::kNotFound);
  EXPECT_THAT(status.ToString(), HasSubstr(folder.path()));
  EXPECT_THAT(status.remedy(), HasSubstr("token ids"));
}

TEST(TokenizerTest, AnErrorInTheFileNamesTheFile) {
  const test::TempFolder folder;
  folder.Write("tokenizer.json", "{\"model\": 1, \"model\": 2}");
  EXPECT_EQ(Tokenizer::Open(folder.path()).status().message(),
            folder / "tokenizer.json" + ": key \"model\" occurs twice");
}

TEST(Utf8Test, ReplacesMaximalPartsAsRustDoes) {
  EXPECT_EQ(ReplaceInvalidUtf8("a\xf0\x9f\x98"), "a\uFFFD");                      // cut
  EXPECT_EQ(ReplaceInvalidUtf8("\xed\xa0\x80"), "\uFFFD\uFFFD\uFFFD");            // a surrogate
  EXPECT_EQ(ReplaceInvalidUtf8("\xc0\xaf\xf4\x90"), "\uFFFD\uFFFD\uFFFD\uFFFD");  // overlong; beyond U+10FFFF
  EXPECT_EQ(ReplaceInvalidUtf8("\U0001F600\u00e9"), "\U0001F600\u00e9");
}

// The real tokenizer against Hugging Face's library: tests/golden/tokenizer_smollm2.json.
class SmolLm2Test : public ::testing::Test {
 protected:
  void SetUp() override {
    const char* folder = std::getenv("REFIT_DEMO_MODEL");
    if (folder == nullptr) {
      GTEST_SKIP() << "REFIT_DEMO_MODEL names no folder: set it to what tools/demo_model/fetch.sh prints";
    }
    auto opened = Tokenizer::Open(folder);
    ASSERT_TRUE(opened.ok()) << opened.status().ToString();
    tokenizer_ = *std::move(opened);
    std::ifstream file(REFIT_GOLDEN_FOLDER "/tokenizer_smollm2.json");
    auto parsed = ParseJson(std::string(std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()));
    ASSERT_TRUE(parsed.ok()) << parsed.status().ToString();
    golden_ = *std::move(parsed);
  }
  static std::vector<TokenId> Ids(const JsonValue& entry) {
    std::vector<TokenId> ids;
    for (const JsonValue& id : entry.Find("ids")->items) {
      ids.push_back(static_cast<TokenId>(id.integer));
    }
    return ids;
  }

  std::unique_ptr<Tokenizer> tokenizer_;
  JsonValue golden_;
};

TEST_F(SmolLm2Test, EncodesAndDecodesAsHuggingFacesLibraryDoes) {
  ASSERT_GE(golden_.Find("texts")->items.size(), 60U);
  for (const JsonValue& entry : golden_.Find("texts")->items) {
    const std::string& text = entry.Find("text")->text;
    EXPECT_EQ(Encode(*tokenizer_, text), Ids(entry)) << Quote(text);
    EXPECT_EQ(tokenizer_->Decode(Ids(entry), Special::kKeep), entry.Find("decoded")->text) << Quote(text);
    EXPECT_EQ(tokenizer_->Decode(Ids(entry), Special::kSkip), entry.Find("decoded_plain")->text) << Quote(text);
  }
}

TEST_F(SmolLm2Test, DecodesCutCharactersAsHuggingFacesLibraryDoes) {
  for (const JsonValue& entry : golden_.Find("parts")->items) {
    EXPECT_EQ(tokenizer_->Decode(Ids(entry), Special::kKeep), entry.Find("decoded")->text) << ToString(entry);
  }
}

}  // namespace
}  // namespace refit::checkpoint

// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0

#include "refit/engine/reference/pickle_reader.h"

#include <gtest/gtest.h>

#include <string>

#include "refit/base/bytes.h"

namespace refit::engine::reference {
namespace {

using std::string_literals::operator""s;

Result<PickleTree> Read(const std::string& pickle, GlobalPolicy policy = GlobalPolicy::kModulePrefixes) {
  return ReadPickle(pickle, policy);
}

std::string Global(std::string_view module, std::string_view name) {
  std::string bytes = "\x8c";
  bytes += static_cast<char>(module.size());
  bytes += module;
  bytes += '\x8c';
  bytes += static_cast<char>(name.size());
  bytes += name;
  return bytes + "\x93";
}

void ExpectError(const Result<PickleTree>& result, std::string_view part) {
  ASSERT_FALSE(result.has_value());
  EXPECT_NE(result.status().message().find(part), std::string::npos) << result.status().message();
}

TEST(PickleReaderTest, ReadsNumbersOfEverySize) {
  const std::string pickle =
      "\x80\x04(K\xffM\x01\x02J\xfe\xff\xff\xff\x8a\x01\x80\x8a\x08\x00\x00\x00\x80\x01\x00\x00\x00"s +
      "\x8a\x00G\x3f\xf8\x00\x00\x00\x00\x00\x00\x88\x89Nt."s;
  const auto tree = Read(pickle);
  ASSERT_TRUE(tree.has_value()) << tree.status().message();
  const PickleValue& root = tree->root();
  ASSERT_EQ(root.kind, PickleKind::kTuple);
  ASSERT_EQ(root.count, 10U);
  EXPECT_EQ(tree->item(root, 0).integer, 255);
  EXPECT_EQ(tree->item(root, 1).integer, 513);
  EXPECT_EQ(tree->item(root, 2).integer, -2);
  EXPECT_EQ(tree->item(root, 3).integer, -128);
  EXPECT_EQ(tree->item(root, 4).integer, 6442450944);
  EXPECT_EQ(tree->item(root, 5).integer, 0);
  EXPECT_EQ(tree->item(root, 6).number, 1.5);
  EXPECT_EQ(tree->item(root, 7).integer, 1);
  EXPECT_EQ(tree->item(root, 8).integer, 0);
  EXPECT_EQ(tree->item(root, 9).kind, PickleKind::kNone);
}

// What CPython's pickle.dumps({"a": [1, 2, "a"]}, 4) wrote: a frame, memo entries and their use.
TEST(PickleReaderTest, ReadsWhatPythonWrites) {
  const std::string pickle =
      "\x80\x04\x95\x12\x00\x00\x00\x00\x00\x00\x00}\x94\x8c\x01"s + "a\x94]\x94(K\x01K\x02h\x01"s + "es."s;
  const auto tree = Read(pickle);
  ASSERT_TRUE(tree.has_value()) << tree.status().message();
  const PickleValue* list = tree->Find(tree->root(), "a");
  ASSERT_NE(list, nullptr);
  ASSERT_EQ(list->count, 3U);
  EXPECT_EQ(tree->item(*list, 2).text, "a");
}

TEST(PickleReaderTest, AListAppendedInPiecesBetweenOtherValuesKeepsItsOrder) {
  // outer = [1]; outer gets a tuple, then more: its items move to the end of the pool and stay in order
  const auto tree = Read("\x80\x04]K\x01"s + "a" + "K\x07\x85" + "a" + "(K\x02K\x03" + "e.");
  ASSERT_TRUE(tree.has_value()) << tree.status().message();
  ASSERT_EQ(tree->root().count, 4U);
  EXPECT_EQ(tree->item(tree->root(), 0).integer, 1);
  EXPECT_EQ(tree->item(tree->root(), 1).kind, PickleKind::kTuple);
  EXPECT_EQ(tree->item(tree->root(), 3).integer, 3);
}

TEST(PickleReaderTest, KnownGlobalsAreNamesNotCode) {
  const auto tree = Read("\x80\x04" + Global("torch", "bfloat16") + ".", GlobalPolicy::kExactNames);
  ASSERT_TRUE(tree.has_value());
  EXPECT_EQ(tree->root().global, Global::kDType);
  EXPECT_EQ(tree->root().dtype, weights::DType::kBfloat16);
  EXPECT_TRUE(Read("\x80\x03"s + "ctorch\nSize\n."s).has_value());
}

// RC-PAY-07: whatever is not on the list is refused, in the family's own words, before anything is made of it.
TEST(PickleReaderTest, EveryOtherGlobalIsBlocked) {
  for (const auto& [module, name] : {std::pair{"os", "system"},
                                     {"builtins", "eval"},
                                     {"builtins", "getattr"},
                                     {"torch", "load"},
                                     {"torch.Size", ""},
                                     {"nt", "system"},
                                     {"", ""}}) {
    const std::string pickle = "\x80\x04" + Global(module, name) + "\x8c\x04true\x85R.";
    ExpectError(Read(pickle), "Blocked unsafe class loading ("s + module + "." + name + ")");
    ExpectError(Read(pickle, GlobalPolicy::kExactNames), "Blocked unsafe global (");
  }
  ExpectError(Read("\x80\x04"s + "cposix\nsystem\n\x8c\x04true\x85R."), "(posix.system)");
}

TEST(PickleReaderTest, OldProtocolsAreBlockedAsTheirBytesAre) {
  ExpectError(Read("\x80\x02]."), "_codecs.encode");
  ExpectError(Read("\x80\x06]."), "unsupported pickle protocol: 6");
}

TEST(PickleReaderTest, GarbageIsRefused) {
  const std::string cases[] = {
      "",
      "\x80",
      "hello world, hello",
      "\x80\x05garbage!"s,
      "\x80\x04"s,                                       // nothing
      "\x80\x04."s,                                      // STOP without a value
      "\x80\x04\x8c\x05"s + "ab.",                       // a string that ends too early
      "\x80\x04X\xff\xff\xff\xff."s,                     // a huge length
      "\x80\x04\x8d\xff\xff\xff\xff\xff\xff\xff\xff."s,  // and one that overflows
      "\x80\x04\x8c\x01\xff."s,                          // not UTF-8
      "\x80\x04\x8c\x03\xed\xa0\x80."s,                  // a surrogate
      "\x80\x04\x8c\x02\xc0\x80."s,                      // overlong
      "\x80\x04t."s,                                     // no mark
      "\x80\x04K\x01(\x86."s,                            // reaches below a mark
      "\x80\x04(R."s,
      "\x80\x04K\x01K\x02R."s,  // calls a number
      "\x80\x04K\x01K\x01"
      "a."s,                                              // appends to a number
      "\x80\x04}(K\x01u."s,                               // half a pair
      "\x80\x04}}b."s,                                    // state for a dict
      "\x80\x04h\x00."s,                                  // no such memo entry
      "\x80\x04\x94."s,                                   // memoizes nothing
      "\x80\x04Nr\xff\xff\xff\xff."s,                     // memo entry far away
      "\x80\x04\x95\xff\x00\x00\x00\x00\x00\x00\x00N."s,  // a frame longer than the pickle
      "\x80\x04\x8a\x09"
      "123456789."s,          // an integer of nine bytes
      "\x80\x04N\x80\x04."s,  // a second PROTO
      "\x80\x04NQ."s,
      "\x80\x04Ni."s,
      "\x80\x04No."s,
      "\x80\x04N\x92."s,
      "\x80\x04N\x82\x01."s,
      "\x80\x04N2."s,
  };
  for (const std::string& pickle : cases) {
    const auto result = Read(pickle);
    EXPECT_FALSE(result.has_value()) << ToHex(AsBytes(pickle));
  }
}

TEST(PickleReaderTest, DepthIsNoDanger) {
  std::string tuples = "\x80\x04N"s;
  tuples.append(200'000, '\x85');
  EXPECT_TRUE(Read(tuples + ".").has_value());
  ExpectError(Read("\x80\x04" + std::string(2000, '(') + "."), "open marks");
  // A list that contains itself is a value like any other: nobody follows it.
  EXPECT_TRUE(Read("\x80\x04]\x94h\x00"
                   "a."s)
                  .has_value());
}

TEST(PickleReaderTest, TheNumberOfValuesIsBounded) {
  std::string bomb = "\x80\x04"s;
  bomb.append(9'000'000, 'N');
  ExpectError(Read(bomb + "."), "values");
}

TEST(PickleReaderTest, WhatFollowsStopIsIgnoredAsPythonDoes) { EXPECT_TRUE(Read("\x80\x04N.garbage").has_value()); }

}  // namespace
}  // namespace refit::engine::reference

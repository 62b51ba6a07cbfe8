// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0
//
// Reads the pickles that update_weights_from_tensor carries, and no others: protocols 3 to 5, a short list of opcodes,
// globals by name from a list. Nothing is ever imported, called or built: calls and objects stay what they are in the
// stream, nodes of a tree. The only pickle reader of the product (RC-PAY-07); hostile input is expected.

#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "refit/base/status.h"
#include "refit/weights/dtype.h"

namespace refit::engine::reference {

// How the server's SafeUnpickler decides (docs/spec/sglang-wire.md §2.2). Both admit what this reader understands;
// they differ in the words of a refusal.
enum class GlobalPolicy : std::uint8_t { kModulePrefixes, kExactNames };

// The globals that mean something here.
enum class Global : std::uint8_t {
  kTensor,
  kSize,
  kDType,
  kTypedStorage,
  kUntypedStorage,
  kRebuildCudaTensor,
  kRebuildTensor,
  kRebuildTypedStorage,
  kRebuildStorageFilename,
  kRebuildTensorV2,
  kLoadFromBytes,
  kOrderedDict,
  kBucketMetadata,
};

enum class PickleKind : std::uint8_t {
  kNone,
  kBool,
  kInt,
  kFloat,
  kString,
  kBytes,
  kGlobal,
  kTuple,
  kList,
  kDict,    // items: key, value, key, value …
  kCall,    // items: callable, tuple of arguments
  kObject,  // items: class, tuple of arguments, then the state if there was a BUILD
};

using PickleIndex = std::uint32_t;

struct PickleValue {
  PickleKind kind = PickleKind::kNone;
  Global global = Global::kTensor;                // kGlobal
  weights::DType dtype = weights::DType::kUint8;  // kGlobal of kDType
  std::int64_t integer = 0;                       // kInt, kBool
  double number = 0;                              // kFloat
  std::string_view text;                          // kString (valid UTF-8), kBytes
  std::uint32_t first = 0;                        // items, in the tree's pool
  std::uint32_t count = 0;
};

// The values of one pickle. Strings and bytes are views into the input, which must outlive the tree. Values may be
// shared (memo) and a list may even contain itself: walk by schema, never blindly.
class PickleTree {
 public:
  const PickleValue& root() const { return values_[root_]; }
  const PickleValue& value(PickleIndex index) const { return values_[index]; }
  std::span<const PickleIndex> items(const PickleValue& value) const {
    return std::span(pool_).subspan(value.first, value.count);
  }
  const PickleValue& item(const PickleValue& value, std::size_t at) const { return values_[items(value)[at]]; }
  // The value of a string key; null where there is none or `dict` is no dict. The last one of equal keys, as in Python.
  const PickleValue* Find(const PickleValue& dict, std::string_view key) const;

 private:
  friend class PickleParser;
  std::vector<PickleValue> values_;
  std::vector<PickleIndex> pool_;
  PickleIndex root_ = 0;
};

// Errors are what the server's log would say: "UnpicklingError: …", "RuntimeError: Blocked unsafe class loading
// (os.system)". What follows STOP is ignored, as Python does.
Result<PickleTree> ReadPickle(std::string_view pickle, GlobalPolicy policy);

}  // namespace refit::engine::reference

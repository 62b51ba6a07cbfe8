// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0
//
// The opcodes and the globals that the pickle reader admits: two tables, and everything else is refused.

#pragma once

#include <array>
#include <string_view>

#include "refit/engine/reference/pickle_reader.h"

namespace refit::engine::reference {

enum class Opcode : unsigned char {
  kMark = '(',
  kStop = '.',
  kBinFloat = 'G',
  kBinInt = 'J',
  kBinInt1 = 'K',
  kBinInt2 = 'M',
  kNone = 'N',
  kReduce = 'R',
  kBinUnicode = 'X',
  kAppend = 'a',
  kBuild = 'b',
  kGlobal = 'c',
  kAppends = 'e',
  kBinGet = 'h',
  kLongBinGet = 'j',
  kEmptyList = ']',
  kBinPut = 'q',
  kLongBinPut = 'r',
  kSetItem = 's',
  kTuple = 't',
  kEmptyTuple = ')',
  kSetItems = 'u',
  kEmptyDict = '}',
  kBinBytes = 'B',
  kShortBinBytes = 'C',
  kProto = 0x80,
  kNewObj = 0x81,
  kTuple1 = 0x85,
  kTuple2 = 0x86,
  kTuple3 = 0x87,
  kNewTrue = 0x88,
  kNewFalse = 0x89,
  kLong1 = 0x8a,
  kShortBinUnicode = 0x8c,
  kBinUnicode8 = 0x8d,
  kBinBytes8 = 0x8e,
  kStackGlobal = 0x93,
  kMemoize = 0x94,
  kFrame = 0x95,
};

struct KnownGlobal {
  std::string_view module;
  std::string_view name;
  Global global;
};
inline constexpr std::string_view kReductions = "torch.multiprocessing.reductions";
inline constexpr std::array kKnownGlobals = {
    KnownGlobal{"torch", "Size", Global::kSize},
    KnownGlobal{"torch", "Tensor", Global::kTensor},
    KnownGlobal{"torch.storage", "TypedStorage", Global::kTypedStorage},
    KnownGlobal{"torch.storage", "UntypedStorage", Global::kUntypedStorage},
    KnownGlobal{"torch.storage", "_load_from_bytes", Global::kLoadFromBytes},
    KnownGlobal{"torch._utils", "_rebuild_tensor_v2", Global::kRebuildTensorV2},
    KnownGlobal{kReductions, "rebuild_cuda_tensor", Global::kRebuildCudaTensor},
    KnownGlobal{"sglang.srt.utils.patch_torch", "_rebuild_cuda_tensor_modified", Global::kRebuildCudaTensor},
    KnownGlobal{kReductions, "rebuild_tensor", Global::kRebuildTensor},
    KnownGlobal{kReductions, "rebuild_typed_storage", Global::kRebuildTypedStorage},
    KnownGlobal{kReductions, "rebuild_storage_filename", Global::kRebuildStorageFilename},
    KnownGlobal{"collections", "OrderedDict", Global::kOrderedDict},
    KnownGlobal{"sglang.srt.weight_sync.tensor_bucket", "FlattenedTensorMetadata", Global::kBucketMetadata},
};

}  // namespace refit::engine::reference

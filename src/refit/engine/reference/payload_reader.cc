// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0

#include "refit/engine/reference/payload_reader.h"

#include <algorithm>
#include <array>
#include <map>
#include <optional>
#include <utility>

#include "refit/base/str.h"

namespace refit::engine::reference {
namespace {

// A tensor as its rebuild call describes it.
struct FlatTensor {
  weights::DType dtype = weights::DType::kUint8;
  weights::Shape shape;
  std::size_t storage = 0;
  ByteCount offset = 0;  // bytes
};

bool IsGlobal(const PickleValue& value, Global global) {
  return value.kind == PickleKind::kGlobal && value.global == global;
}

class PayloadParser {
 public:
  explicit PayloadParser(const PickleTree& tree) : tree_(tree) {}

  Result<RankLoad> ReadBucket() {
    const PickleValue* flat = tree_.Find(tree_.root(), "flattened_tensor");
    const PickleValue* metadata = tree_.Find(tree_.root(), "metadata");
    if (tree_.root().kind != PickleKind::kDict) {
      return InvalidArgument(
          "TypeError: list indices must be integers or slices, not str (flattened_bucket takes a dict)");
    }
    if (flat == nullptr || metadata == nullptr || metadata->kind != PickleKind::kList) {
      return InvalidArgument("KeyError: a flattened bucket has 'flattened_tensor' and a list 'metadata'");
    }
    REFIT_ASSIGN_OR_RETURN(const FlatTensor tensor, ReadTensor(*flat));
    if (tensor.dtype != weights::DType::kUint8 || tensor.shape.size() != 1) {
      return InvalidArgument("RuntimeError: the flattened tensor of a bucket is one-dimensional uint8");
    }
    load_.tensors.reserve(metadata->count);
    for (const PickleIndex index : tree_.items(*metadata)) {
      REFIT_RETURN_IF_ERROR(ReadBucketEntry(tree_.value(index), tensor));
    }
    return std::move(load_);
  }

  Result<RankLoad> ReadNamedTensors() {
    if (tree_.root().kind != PickleKind::kList) {
      return InvalidArgument("ValueError: too many values to unpack (expected 2) (load_format null takes a list)");
    }
    for (const PickleIndex index : tree_.items(tree_.root())) {
      const PickleValue& pair = tree_.value(index);
      if (pair.kind != PickleKind::kTuple || pair.count != 2 || tree_.item(pair, 0).kind != PickleKind::kString) {
        return InvalidArgument("ValueError: load_format null takes (name, tensor) pairs");
      }
      REFIT_ASSIGN_OR_RETURN(FlatTensor tensor, ReadTensor(tree_.item(pair, 1)));
      PayloadView view;
      view.spec = {std::string(tree_.item(pair, 0).text), tensor.dtype, std::move(tensor.shape)};
      view.storage = tensor.storage;
      view.offset = tensor.offset;
      REFIT_RETURN_IF_ERROR(Add(std::move(view)));
    }
    return std::move(load_);
  }

 private:
  // The tensor must lie inside its storage and start on a multiple of its item size.
  Status Add(PayloadView view) {
    REFIT_ASSIGN_OR_RETURN(view.size, weights::SizeOf(view.spec));
    const ByteCount end = load_.storages[view.storage].data_size;
    if (view.offset > end || view.size > end - view.offset) {
      return InvalidArgument(StrCat("RuntimeError: ", view.spec.name, " leaves its storage of ", end, " bytes"));
    }
    if (view.offset % weights::ItemSize(view.spec.dtype) != 0) {
      return InvalidArgument(StrCat("RuntimeError: self.storage_offset() must be divisible by ",
                                    weights::ItemSize(view.spec.dtype), " to view ", view.spec.name));
    }
    load_.tensors.push_back(std::move(view));
    return OkStatus();
  }

  Status ReadBucketEntry(const PickleValue& entry, const FlatTensor& bucket) {
    if (entry.kind != PickleKind::kObject || entry.count != 3 ||
        !IsGlobal(tree_.item(entry, 0), Global::kBucketMetadata)) {
      return InvalidArgument("AttributeError: metadata of a bucket holds FlattenedTensorMetadata");
    }
    const PickleValue& state = tree_.item(entry, 2);
    const PickleValue* name = tree_.Find(state, "name");
    const PickleValue* shape = tree_.Find(state, "shape");
    const PickleValue* dtype = tree_.Find(state, "dtype");
    const PickleValue* start = tree_.Find(state, "start_idx");
    const PickleValue* end = tree_.Find(state, "end_idx");
    if (name == nullptr || shape == nullptr || dtype == nullptr || start == nullptr || end == nullptr ||
        name->kind != PickleKind::kString || !IsGlobal(*dtype, Global::kDType)) {
      return InvalidArgument("AttributeError: FlattenedTensorMetadata lacks name, shape, dtype, start_idx or end_idx");
    }
    PayloadView view;
    view.spec.name = std::string(name->text);
    view.spec.dtype = dtype->dtype;
    REFIT_ASSIGN_OR_RETURN(view.spec.shape, ReadShape(*shape));
    REFIT_ASSIGN_OR_RETURN(const ByteCount begin, ReadSize(*start));
    REFIT_ASSIGN_OR_RETURN(const ByteCount finish, ReadSize(*end));
    REFIT_ASSIGN_OR_RETURN(view.size, weights::SizeOf(view.spec));
    const auto bucket_size = static_cast<ByteCount>(bucket.shape[0]);
    if (begin > finish || finish > bucket_size || finish - begin != view.size) {
      return InvalidArgument(StrCat("RuntimeError: shape '", weights::ToString(view.spec.shape),
                                    "' is invalid for input of bytes ", begin, " to ", finish, " of ", bucket_size));
    }
    view.storage = bucket.storage;
    view.offset = bucket.offset + begin;
    return Add(std::move(view));
  }

  // rebuild_tensor(torch.Tensor, storage, (offset, size, stride, requires_grad))
  Result<FlatTensor> ReadTensor(const PickleValue& call) {
    if (call.kind != PickleKind::kCall) {
      return InvalidArgument("AttributeError: a payload's tensor is not a tensor");
    }
    const PickleValue& callable = tree_.item(call, 0);
    if (IsGlobal(callable, Global::kRebuildCudaTensor)) {
      return FailedPrecondition("RuntimeError: CUDA driver initialization failed, this engine has no GPU",
                                "send host shared memory to the reference engine");
    }
    const PickleValue& arguments = tree_.item(call, 1);
    if (!IsGlobal(callable, Global::kRebuildTensor) || arguments.count != 3 ||
        !IsGlobal(tree_.item(arguments, 0), Global::kTensor)) {
      return Unimplemented("TypeError: the reference engine reads tensors in host shared memory only (rebuild_tensor)");
    }
    const PickleValue& layout = tree_.item(arguments, 2);
    if (layout.kind != PickleKind::kTuple || layout.count != 4) {
      return InvalidArgument("ValueError: rebuild_tensor takes (offset, size, stride, requires_grad)");
    }
    REFIT_ASSIGN_OR_RETURN(FlatTensor tensor, ReadTypedStorage(tree_.item(arguments, 1)));
    REFIT_ASSIGN_OR_RETURN(const ByteCount offset, ReadSize(tree_.item(layout, 0)));
    REFIT_ASSIGN_OR_RETURN(tensor.shape, ReadShape(tree_.item(layout, 1)));
    REFIT_ASSIGN_OR_RETURN(const weights::Shape strides, ReadShape(tree_.item(layout, 2)));
    REFIT_RETURN_IF_ERROR(CheckContiguous(tensor.shape, strides));
    const std::optional<ByteCount> bytes = CheckedMultiply(offset, weights::ItemSize(tensor.dtype));
    weights::TensorSpec spec = {"tensor", tensor.dtype, tensor.shape};
    REFIT_ASSIGN_OR_RETURN(const ByteCount size, weights::SizeOf(spec));
    const ByteCount limit = load_.storages[tensor.storage].data_size;
    if (!bytes.has_value() || *bytes > limit || size > limit - *bytes) {
      return InvalidArgument(StrCat("RuntimeError: setStorage: a tensor of ", size,
                                    " bytes is out of bounds for storage of size ", limit));
    }
    tensor.offset = *bytes;
    return tensor;
  }

  Status CheckContiguous(const weights::Shape& shape, const weights::Shape& strides) const {
    if (shape.size() != strides.size()) {
      return InvalidArgument("RuntimeError: mismatch in length of strides and shape");
    }
    std::int64_t expected = 1;
    for (std::size_t i = shape.size(); i-- > 0;) {
      if (shape[i] != 1 && strides[i] != expected) {
        return Unimplemented("RuntimeError: the reference engine reads contiguous tensors only");
      }
      if (__builtin_mul_overflow(expected, std::max<std::int64_t>(shape[i], 1), &expected)) {
        return InvalidArgument("RuntimeError: Storage size calculation overflowed");
      }
    }
    return OkStatus();
  }

  // rebuild_typed_storage(rebuild_storage_filename(UntypedStorage, b"…", b"/name", bytes), dtype)
  Result<FlatTensor> ReadTypedStorage(const PickleValue& call) {
    if (call.kind != PickleKind::kCall || !IsGlobal(tree_.item(call, 0), Global::kRebuildTypedStorage)) {
      return InvalidArgument("AttributeError: a tensor's storage is not a TypedStorage");
    }
    const PickleValue& arguments = tree_.item(call, 1);
    if (arguments.count != 2 || !IsGlobal(tree_.item(arguments, 1), Global::kDType)) {
      return InvalidArgument("TypeError: rebuild_typed_storage takes a storage and a dtype");
    }
    FlatTensor tensor;
    tensor.dtype = tree_.item(arguments, 1).dtype;
    REFIT_ASSIGN_OR_RETURN(tensor.storage, ReadSharedStorage(tree_.item(arguments, 0)));
    return tensor;
  }

  Result<std::size_t> ReadSharedStorage(const PickleValue& call) {
    if (call.kind != PickleKind::kCall || !IsGlobal(tree_.item(call, 0), Global::kRebuildStorageFilename)) {
      return Unimplemented(
          "TypeError: the reference engine opens storages by file name only (rebuild_storage_filename)");
    }
    const PickleValue& arguments = tree_.item(call, 1);
    if (arguments.count != 4 || !IsGlobal(tree_.item(arguments, 0), Global::kUntypedStorage) ||
        tree_.item(arguments, 2).kind != PickleKind::kBytes) {
      return InvalidArgument("TypeError: rebuild_storage_filename takes a class, a manager, a name and a size");
    }
    const std::string_view name = tree_.item(arguments, 2).text;
    REFIT_ASSIGN_OR_RETURN(const ByteCount size, ReadSize(tree_.item(arguments, 3)));
    if (const auto known = opened_.find(&call); known != opened_.end()) {
      return known->second;  // one call behind the memo: torch opens it once
    }
    std::size_t at = 0;
    while (at < load_.storages.size() && load_.storages[at].shm_name != name) {
      ++at;
    }
    if (at == load_.storages.size()) {
      load_.storages.push_back({std::string(name), size, 0});
    } else if (load_.storages[at].data_size != size) {
      return InvalidArgument(StrCat("RuntimeError: ", name, " is named with two sizes"));
    }
    ++load_.storages[at].uses;
    opened_.emplace(&call, at);
    return at;
  }

  // torch.Size((…)) or a plain tuple
  Result<weights::Shape> ReadShape(const PickleValue& value) const {
    const PickleValue* tuple = &value;
    if (value.kind == PickleKind::kCall && IsGlobal(tree_.item(value, 0), Global::kSize) &&
        tree_.item(value, 1).count == 1) {
      tuple = &tree_.item(tree_.item(value, 1), 0);
    }
    if ((tuple->kind != PickleKind::kTuple && tuple->kind != PickleKind::kList) || tuple->count > weights::kMaxRank) {
      return InvalidArgument("TypeError: a shape is a tuple of at most 8 integers");
    }
    weights::Shape shape;
    for (const PickleIndex index : tree_.items(*tuple)) {
      const PickleValue& dimension = tree_.value(index);
      if (dimension.kind != PickleKind::kInt || dimension.integer < 0) {
        return InvalidArgument("RuntimeError: a dimension that is no integer or is negative");
      }
      shape.push_back(dimension.integer);
    }
    return shape;
  }

  Result<ByteCount> ReadSize(const PickleValue& value) const {
    if (value.kind != PickleKind::kInt || value.integer < 0) {
      return InvalidArgument("TypeError: a size or offset that is no integer or is negative");
    }
    return static_cast<ByteCount>(value.integer);
  }

  const PickleTree& tree_;
  RankLoad load_;
  std::map<const PickleValue*, std::size_t> opened_;
};

constexpr std::array<std::int8_t, 256> MakeDigits() {
  std::array<std::int8_t, 256> digits{};
  digits.fill(-1);
  constexpr std::string_view kAlphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  for (std::size_t i = 0; i < kAlphabet.size(); ++i) {
    digits[static_cast<unsigned char>(kAlphabet[i])] = static_cast<std::int8_t>(i);
  }
  return digits;
}
constexpr std::array<std::int8_t, 256> kDigits = MakeDigits();

}  // namespace

Result<RankLoad> ReadPayload(std::string_view pickle, LoadFormat format, GlobalPolicy policy) {
  REFIT_ASSIGN_OR_RETURN(const PickleTree tree, ReadPickle(pickle, policy));
  PayloadParser parser(tree);
  return format == LoadFormat::kFlattenedBucket ? parser.ReadBucket() : parser.ReadNamedTensors();
}

std::optional<std::string> DecodeBase64(std::string_view text) {
  if (text.size() % 4 != 0) {
    return std::nullopt;
  }
  const std::size_t padding = text.ends_with("==") ? 2 : text.ends_with('=') ? 1 : 0;
  const std::size_t digits = text.size() - padding;
  std::string out;
  out.resize(text.size() / 4 * 3);
  std::size_t written = 0;
  std::uint32_t bits = 0;
  int invalid = 0;
  for (std::size_t at = 0; at < text.size(); ++at) {
    const int digit = at < digits ? kDigits[static_cast<unsigned char>(text[at])] : 0;
    invalid |= digit;  // negative once and for all
    bits = (bits << 6) | (static_cast<std::uint32_t>(digit) & 63U);
    if (at % 4 == 3) {
      out[written++] = static_cast<char>(bits >> 16);
      out[written++] = static_cast<char>(bits >> 8);
      out[written++] = static_cast<char>(bits);
    }
  }
  if (invalid < 0) {
    return std::nullopt;
  }
  out.resize(written - padding);
  return out;
}

}  // namespace refit::engine::reference

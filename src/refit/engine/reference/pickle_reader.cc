// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0

#include "refit/engine/reference/pickle_reader.h"

#include <algorithm>
#include <bit>
#include <string>

#include "refit/base/str.h"
#include "refit/checkpoint/utf8.h"
#include "refit/engine/reference/pickle_names.h"

namespace refit::engine::reference {
namespace {

// More than any model needs (about 30 values a tensor), little enough that a hostile pickle costs no more than memory
// of its own size.
constexpr std::size_t kMaxValues = std::size_t{1} << 23;
constexpr std::size_t kMaxMarks = 1000;

Status Unpickling(std::string message) { return InvalidArgument(StrCat("UnpicklingError: ", message)); }

Status Blocked(std::string_view module, std::string_view name, GlobalPolicy policy) {
  // The words differ by family; a test of a pipeline may look for them.
  const std::string_view words =
      policy == GlobalPolicy::kModulePrefixes ? "Blocked unsafe class loading" : "Blocked unsafe global";
  return {StatusCode::kPermissionDenied, StrCat("RuntimeError: ", words, " (", module, ".", name, ")")};
}

}  // namespace

const PickleValue* PickleTree::Find(const PickleValue& dict, std::string_view key) const {
  if (dict.kind != PickleKind::kDict) {
    return nullptr;
  }
  const std::span<const PickleIndex> pairs = items(dict);
  for (std::size_t at = pairs.size(); at >= 2; at -= 2) {
    const PickleValue& candidate = values_[pairs[at - 2]];
    if (candidate.kind == PickleKind::kString && candidate.text == key) {
      return &values_[pairs[at - 1]];
    }
  }
  return nullptr;
}

// One pass over the opcodes with an explicit stack: no recursion, so no depth that could exhaust ours.
class PickleParser {
 public:
  PickleParser(std::string_view input, GlobalPolicy policy) : input_(input), policy_(policy) {
    tree_.values_.reserve(std::min<std::size_t>(input.size() / 4 + 16, 1 << 16));
  }

  Result<PickleTree> Parse() {
    REFIT_RETURN_IF_ERROR(ReadProtocol());
    while (!stopped_) {
      REFIT_ASSIGN_OR_RETURN(const std::uint64_t opcode, ReadInteger(1));
      REFIT_RETURN_IF_ERROR(Execute(static_cast<Opcode>(opcode)));
      if (tree_.values_.size() > kMaxValues || tree_.pool_.size() > kMaxValues) {
        return Unpickling(StrCat("more than ", kMaxValues, " values"));
      }
    }
    return std::move(tree_);
  }

 private:
  using Values = std::vector<PickleIndex>;

  Status ReadProtocol() {
    if (input_.size() < 2 || static_cast<Opcode>(static_cast<unsigned char>(input_[0])) != Opcode::kProto) {
      return Unpickling("a pickle starts with the PROTO opcode 0x80");
    }
    const int protocol = static_cast<unsigned char>(input_[1]);
    if (protocol > 5) {
      return InvalidArgument(StrCat("ValueError: unsupported pickle protocol: ", protocol));
    }
    if (protocol < 3) {  // bytes in them need _codecs.encode, which the server blocks
      return Blocked("_codecs", "encode", policy_);
    }
    position_ = 2;
    return OkStatus();
  }

  Status Execute(Opcode opcode) {
    switch (opcode) {
      case Opcode::kMark: return PushMark();
      case Opcode::kStop: return Stop();
      case Opcode::kNone: return Push(PickleValue{});
      case Opcode::kNewTrue: return PushInteger(PickleKind::kBool, 1);
      case Opcode::kNewFalse: return PushInteger(PickleKind::kBool, 0);
      case Opcode::kBinInt: return PushInt(4);
      case Opcode::kBinInt1: return PushInt(1);
      case Opcode::kBinInt2: return PushInt(2);
      case Opcode::kLong1: return PushLong();
      case Opcode::kBinFloat: return PushFloat();
      case Opcode::kShortBinUnicode: return PushText(PickleKind::kString, 1);
      case Opcode::kBinUnicode: return PushText(PickleKind::kString, 4);
      case Opcode::kBinUnicode8: return PushText(PickleKind::kString, 8);
      case Opcode::kShortBinBytes: return PushText(PickleKind::kBytes, 1);
      case Opcode::kBinBytes: return PushText(PickleKind::kBytes, 4);
      case Opcode::kBinBytes8: return PushText(PickleKind::kBytes, 8);
      case Opcode::kEmptyTuple: return PushCollected(PickleKind::kTuple, 0);
      case Opcode::kTuple1: return PushCollected(PickleKind::kTuple, 1);
      case Opcode::kTuple2: return PushCollected(PickleKind::kTuple, 2);
      case Opcode::kTuple3: return PushCollected(PickleKind::kTuple, 3);
      case Opcode::kTuple: return PushTuple();
      case Opcode::kEmptyList: return PushCollected(PickleKind::kList, 0);
      case Opcode::kEmptyDict: return PushCollected(PickleKind::kDict, 0);
      case Opcode::kAppend: return Extend(PickleKind::kList, 1);
      case Opcode::kAppends: return ExtendToMark(PickleKind::kList);
      case Opcode::kSetItem: return Extend(PickleKind::kDict, 2);
      case Opcode::kSetItems: return ExtendToMark(PickleKind::kDict);
      case Opcode::kReduce: return PushCollected(PickleKind::kCall, 2);
      case Opcode::kNewObj: return PushCollected(PickleKind::kObject, 2);
      case Opcode::kBuild: return Extend(PickleKind::kObject, 1);
      case Opcode::kGlobal: return PushLineGlobal();
      case Opcode::kStackGlobal: return PushStackGlobal();
      case Opcode::kMemoize: return Memoize(memo_.size());
      case Opcode::kBinPut: return MemoizeAt(1);
      case Opcode::kLongBinPut: return MemoizeAt(4);
      case Opcode::kBinGet: return PushMemo(1);
      case Opcode::kLongBinGet: return PushMemo(4);
      case Opcode::kFrame: return CheckFrame();
      case Opcode::kProto: break;  // only the first
    }
    return Unpickling(StrCat("opcode ", static_cast<int>(opcode), " at byte ", position_ - 1, " is not admitted"));
  }

  Result<std::string_view> ReadBytes(std::uint64_t size) {
    if (size > input_.size() - position_) {
      return Unpickling("pickle data was truncated");
    }
    const std::string_view bytes = input_.substr(position_, size);
    position_ += size;
    return bytes;
  }
  Result<std::uint64_t> ReadInteger(std::size_t size) {  // little-endian
    REFIT_ASSIGN_OR_RETURN(const std::string_view bytes, ReadBytes(size));
    std::uint64_t value = 0;
    for (std::size_t i = 0; i < size; ++i) {
      value |= static_cast<std::uint64_t>(static_cast<unsigned char>(bytes[i])) << (8 * i);
    }
    return value;
  }

  Status Push(PickleValue value) {
    stack_.push_back(static_cast<PickleIndex>(tree_.values_.size()));
    tree_.values_.push_back(value);
    return OkStatus();
  }
  Status PushInteger(PickleKind kind, std::int64_t integer) {
    PickleValue value;
    value.kind = kind;
    value.integer = integer;
    return Push(value);
  }
  Status PushInt(std::size_t size) {
    REFIT_ASSIGN_OR_RETURN(const std::uint64_t raw, ReadInteger(size));
    const auto value = static_cast<std::int64_t>(raw);
    return PushInteger(PickleKind::kInt, size == 4 ? static_cast<std::int32_t>(raw) : value);
  }
  Status PushLong() {
    REFIT_ASSIGN_OR_RETURN(const std::uint64_t size, ReadInteger(1));
    if (size > 8) {
      return Unpickling(StrCat("an integer of ", size, " bytes"));
    }
    REFIT_ASSIGN_OR_RETURN(std::uint64_t raw, ReadInteger(size));
    if (size > 0 && size < 8 && ((raw >> (8 * size - 1)) & 1) != 0) {
      raw |= ~std::uint64_t{0} << (8 * size);  // two's complement
    }
    return PushInteger(PickleKind::kInt, static_cast<std::int64_t>(raw));
  }
  Status PushFloat() {
    REFIT_ASSIGN_OR_RETURN(const std::string_view bytes, ReadBytes(8));
    std::uint64_t raw = 0;
    for (const char byte : bytes) {
      raw = (raw << 8) | static_cast<unsigned char>(byte);
    }
    PickleValue value;
    value.kind = PickleKind::kFloat;
    value.number = std::bit_cast<double>(raw);
    return Push(value);
  }
  Status PushText(PickleKind kind, std::size_t length_size) {
    REFIT_ASSIGN_OR_RETURN(const std::uint64_t length, ReadInteger(length_size));
    PickleValue value;
    value.kind = kind;
    REFIT_ASSIGN_OR_RETURN(value.text, ReadBytes(length));
    if (kind == PickleKind::kString && checkpoint::ValidUtf8Size(value.text) != value.text.size()) {
      return InvalidArgument("UnicodeDecodeError: 'utf-8' codec can't decode a string of the pickle");
    }
    return Push(value);
  }

  // Values above the topmost mark; below it nothing may be touched.
  std::size_t available() const { return stack_.size() - (marks_.empty() ? 0 : marks_.back()); }

  Status PushMark() {
    if (marks_.size() >= kMaxMarks) {
      return Unpickling(StrCat("more than ", kMaxMarks, " open marks"));
    }
    marks_.push_back(stack_.size());
    return OkStatus();
  }
  Result<std::size_t> PopMark() {  // how many values stand above it
    if (marks_.empty()) {
      return Unpickling("could not find MARK");
    }
    const std::size_t count = available();
    marks_.pop_back();
    return count;
  }

  // The topmost `count` values become the items of a new value.
  Status PushCollected(PickleKind kind, std::size_t count) {
    if (available() < count) {
      return Unpickling("unexpected MARK found or stack underflow");
    }
    PickleValue value;
    value.kind = kind;
    value.first = static_cast<std::uint32_t>(tree_.pool_.size());
    value.count = static_cast<std::uint32_t>(count);
    const auto begin = stack_.end() - static_cast<std::ptrdiff_t>(count);
    tree_.pool_.insert(tree_.pool_.end(), begin, stack_.end());
    stack_.erase(begin, stack_.end());
    if (kind == PickleKind::kCall || kind == PickleKind::kObject) {
      REFIT_RETURN_IF_ERROR(CheckCallable(value));
    }
    return Push(value);
  }
  Status CheckCallable(const PickleValue& value) const {
    if (tree_.item(value, 0).kind != PickleKind::kGlobal || tree_.item(value, 1).kind != PickleKind::kTuple) {
      return InvalidArgument("TypeError: only a global can be called, with a tuple of arguments");
    }
    return OkStatus();
  }
  Status PushTuple() {
    REFIT_ASSIGN_OR_RETURN(const std::size_t count, PopMark());
    return PushCollected(PickleKind::kTuple, count);
  }

  // Appends the topmost `count` values to the container under them.
  Status Extend(PickleKind kind, std::size_t count) {
    if (available() < count + 1) {
      return Unpickling("unexpected MARK found or stack underflow");
    }
    const auto begin = stack_.end() - static_cast<std::ptrdiff_t>(count);
    PickleValue& container = tree_.values_[*(begin - 1)];
    const bool second_state = kind == PickleKind::kObject && container.count != 2;
    if (container.kind != kind || second_state || (kind == PickleKind::kDict && count % 2 != 0)) {
      return Unpickling("items for something that takes none");
    }
    std::vector<PickleIndex>& pool = tree_.pool_;
    if (container.first + container.count != pool.size()) {  // not the last one in the pool: moves to its end
      const std::size_t first = pool.size();
      pool.resize(first + container.count);
      std::copy_n(pool.begin() + container.first, container.count, pool.begin() + static_cast<std::ptrdiff_t>(first));
      container.first = static_cast<std::uint32_t>(first);
    }
    pool.insert(pool.end(), begin, stack_.end());
    container.count += static_cast<std::uint32_t>(count);
    stack_.erase(begin, stack_.end());
    return OkStatus();
  }
  Status ExtendToMark(PickleKind kind) {
    REFIT_ASSIGN_OR_RETURN(const std::size_t count, PopMark());
    return Extend(kind, count);
  }

  Status PushLineGlobal() {
    REFIT_ASSIGN_OR_RETURN(const std::string_view module, ReadLine());
    REFIT_ASSIGN_OR_RETURN(const std::string_view name, ReadLine());
    return PushGlobal(module, name);
  }
  Result<std::string_view> ReadLine() {
    const std::size_t end = input_.find('\n', position_);
    if (end == std::string_view::npos) {
      return Unpickling("pickle data was truncated");
    }
    const std::string_view line = input_.substr(position_, end - position_);
    position_ = end + 1;
    return line;
  }
  Status PushStackGlobal() {
    if (available() < 2) {
      return Unpickling("unexpected MARK found or stack underflow");
    }
    const PickleValue name = tree_.values_[stack_.back()];
    stack_.pop_back();
    const PickleValue module = tree_.values_[stack_.back()];
    stack_.pop_back();
    if (module.kind != PickleKind::kString || name.kind != PickleKind::kString) {
      return Unpickling("STACK_GLOBAL requires str");
    }
    return PushGlobal(module.text, name.text);
  }
  Status PushGlobal(std::string_view module, std::string_view name) {
    PickleValue value;
    value.kind = PickleKind::kGlobal;
    const auto* known = std::ranges::find_if(
        kKnownGlobals, [&](const KnownGlobal& entry) { return entry.module == module && entry.name == name; });
    if (known != kKnownGlobals.end()) {
      value.global = known->global;
      return Push(value);
    }
    const std::optional<weights::DType> dtype = module == "torch" ? weights::DTypeFromTorchName(name) : std::nullopt;
    if (!dtype.has_value()) {
      return Blocked(module, name, policy_);
    }
    value.global = Global::kDType;
    value.dtype = *dtype;
    return Push(value);
  }

  Status MemoizeAt(std::size_t size) {
    REFIT_ASSIGN_OR_RETURN(const std::uint64_t index, ReadInteger(size));
    return Memoize(index);
  }
  Status Memoize(std::uint64_t index) {
    if (available() == 0 || index > memo_.size()) {  // writers number them without gaps
      return Unpickling("a memo entry out of order or without a value");
    }
    if (index == memo_.size()) {
      memo_.push_back(stack_.back());
    } else {
      memo_[index] = stack_.back();
    }
    return OkStatus();
  }
  Status PushMemo(std::size_t size) {
    REFIT_ASSIGN_OR_RETURN(const std::uint64_t index, ReadInteger(size));
    if (index >= memo_.size()) {
      return Unpickling(StrCat("Memo value not found at index ", index));
    }
    stack_.push_back(memo_[index]);
    return OkStatus();
  }

  Status CheckFrame() {
    REFIT_ASSIGN_OR_RETURN(const std::uint64_t size, ReadInteger(8));
    if (size > input_.size() - position_) {
      return Unpickling("pickle exhausted before end of frame");
    }
    return OkStatus();
  }
  Status Stop() {
    if (available() == 0) {
      return Unpickling("STOP without a value");
    }
    tree_.root_ = stack_.back();
    stopped_ = true;
    return OkStatus();
  }

  std::string_view input_;
  GlobalPolicy policy_;
  std::size_t position_ = 0;
  bool stopped_ = false;
  PickleTree tree_;
  Values stack_;
  Values memo_;
  std::vector<std::size_t> marks_;
};

Result<PickleTree> ReadPickle(std::string_view pickle, GlobalPolicy policy) {
  return PickleParser(pickle, policy).Parse();
}

}  // namespace refit::engine::reference

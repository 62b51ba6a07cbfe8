// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0
//
// A payload is: format, type, then the record's fields in order. Numbers are little-endian; strings and lists begin
// with their count in 32 bits. There is one encoding of each record, and Decode takes no other.

#include <concepts>
#include <cstddef>
#include <type_traits>
#include <utility>

#include "refit/base/mutant.h"
#include "refit/base/str.h"
#include "refit/control/journal.h"

namespace refit::control {
namespace {

constexpr std::uint8_t kFormat = 1;

Status Unreadable(std::string message) {
  return DataLoss(StrCat("the journal cannot be read: ", message),
                  "nothing is changed any more; look at the file and at its disk");
}

class Writer {
 public:
  static constexpr bool kReads = false;

  template <std::unsigned_integral T>
  void Number(T value) {
    for (std::size_t byte = 0; byte < sizeof(T); ++byte) {
      out_ += static_cast<char>(static_cast<std::uint8_t>(value >> (8 * byte)));
    }
  }
  void Text(const std::string& text) {
    Number(static_cast<std::uint32_t>(text.size()));
    out_ += text;
  }
  std::string Take() { return std::move(out_); }

 private:
  std::string out_;
};

// Fails once and for all: after that everything reads as zero.
class Reader {
 public:
  static constexpr bool kReads = true;

  explicit Reader(std::string_view in) : in_(in) {}

  template <std::unsigned_integral T>
  void Number(T& value) {
    value = 0;
    if (sizeof(T) > in_.size()) {
      return Fail("it ends early");
    }
    for (std::size_t byte = 0; byte < sizeof(T); ++byte) {
      value = static_cast<T>(value | static_cast<T>(T{static_cast<std::uint8_t>(in_[byte])} << (8 * byte)));
    }
    in_.remove_prefix(sizeof(T));
  }
  void Text(std::string& text) {
    std::uint32_t size = 0;
    Number(size);
    if (size > in_.size()) {
      return Fail("a text is longer than the record");
    }
    text = in_.substr(0, size);
    in_.remove_prefix(size);
  }
  void Fail(std::string_view why) {
    in_ = {};
    if (failure_.empty()) {
      failure_ = why;
    }
  }
  std::size_t left() const { return in_.size(); }
  bool failed() const { return !failure_.empty(); }
  const std::string& failure() const { return failure_; }

 private:
  std::string_view in_;
  std::string failure_;
};

// One description of each record serves both ways: `io` is a Writer over a constant record or a Reader that fills one.
template <typename Io>
void Visit(Io& io, auto& value);

template <typename Io, typename T>
void VisitList(Io& io, T& list) {
  std::uint32_t count = static_cast<std::uint32_t>(list.size());
  io.Number(count);
  if constexpr (Io::kReads) {
    if (count > io.left()) {  // every element takes a byte or more
      return io.Fail("a list is longer than the record");
    }
    list.resize(count);
  }
  for (auto& element : list) {
    Visit(io, element);
  }
}

template <typename Io>
void VisitEnum(Io& io, auto& value, std::remove_cvref_t<decltype(value)> last) {
  auto number = static_cast<std::uint8_t>(value);
  io.Number(number);
  if constexpr (Io::kReads) {
    if (number > static_cast<std::uint8_t>(last)) {
      return io.Fail(StrCat("value ", number, " where ", static_cast<std::uint8_t>(last), " is the last known one"));
    }
    value = static_cast<std::remove_cvref_t<decltype(value)>>(number);
  }
}

template <typename Io>
void VisitBool(Io& io, auto& value) {
  auto number = static_cast<std::uint8_t>(value ? 1 : 0);
  io.Number(number);
  if constexpr (Io::kReads) {
    if (number > 1) {
      return io.Fail(StrCat("value ", number, " where 0 or 1 stands"));
    }
    value = number == 1;
  }
}

template <typename Io>
void VisitStatus(Io& io, auto& status) {
  StatusCode code = status.code();
  std::string message = status.message();
  std::string remedy = status.remedy();
  VisitEnum(io, code, StatusCode::kDataLoss);
  io.Text(message);
  io.Text(remedy);
  if constexpr (Io::kReads) {
    status = Status(code, std::move(message), std::move(remedy));
  }
}

template <typename T>
concept StrongNumber = requires(T id) {
  typename T::rep;
  id.Next();
};

template <typename Io, typename... Fields>
void Each(Io& io, Fields&... fields) {
  (Visit(io, fields), ...);
}

template <typename Io>
void Visit(Io& io, auto& value) {
  using T = std::remove_cvref_t<decltype(value)>;
  if constexpr (StrongNumber<T>) {
    typename T::rep number = value.value();
    io.Number(number);
    if constexpr (Io::kReads) {
      value = T(number);
    }
  } else if constexpr (std::derived_from<T, Id128>) {
    io.Number(value.high);
    io.Number(value.low);
  } else if constexpr (std::same_as<T, AttemptId>) {
    std::uint64_t packed = value.packed();
    io.Number(packed);
    if constexpr (Io::kReads) {
      value = AttemptId::FromPacked(packed);
    }
  } else if constexpr (std::same_as<T, std::string>) {
    io.Text(value);
  } else if constexpr (std::same_as<T, bool>) {
    VisitBool(io, value);
  } else if constexpr (std::same_as<T, Status>) {
    VisitStatus(io, value);
  } else if constexpr (std::same_as<T, fleet::SlotState>) {
    VisitEnum(io, value, fleet::SlotState::kRetired);
  } else if constexpr (std::same_as<T, RunRecord>) {
    Each(io, value.run);
  } else if constexpr (std::same_as<T, TermRecord>) {
    Each(io, value.term);
  } else if constexpr (std::same_as<T, SlotRecord>) {
    Each(io, value.slot, value.incarnation, value.state, value.reason);
  } else if constexpr (std::same_as<T, BindRecord>) {
    Each(io, value.slot, value.incarnation, value.policies);
  } else if constexpr (std::same_as<T, IntentRecord>) {
    Each(io, value.request_id, value.version, value.attempt, value.source);
  } else if constexpr (std::same_as<T, AbortedRecord>) {
    Each(io, value.attempt, value.version, value.opened);
  } else if constexpr (std::same_as<T, CommitMember>) {
    Each(io, value.slot, value.incarnation, value.attempt);
  } else if constexpr (std::same_as<T, CommitRecord>) {
    Each(io, value.request_id, value.version, value.digest, value.source, value.members, value.excluded);
  } else if constexpr (std::same_as<T, OutcomeRecord>) {
    Each(io, value.request_id, value.version, value.committed, value.status);
  } else if constexpr (std::same_as<T, LatchRecord>) {
    Each(io, value.reason);
  } else if constexpr (std::same_as<T, RetireRecord>) {
    Each(io, value.slot);
  } else if constexpr (std::same_as<T, Service>) {
    VisitEnum(io, value, Service::kLeaving);
  } else if constexpr (std::same_as<T, ServiceRecord>) {
    Each(io, value.slot, value.service);
  } else if constexpr (requires { value.first; }) {
    Each(io, value.first, value.second);
  } else {
    VisitList(io, value);
  }
}

// The record of that type, empty; nothing where there is no such type.
template <std::size_t I = 0>
std::optional<Record> EmptyRecord(std::uint8_t type) {
  if constexpr (I < std::variant_size_v<Record>) {
    return type == I ? Record(std::in_place_index<I>) : EmptyRecord<I + 1>(type);
  } else {
    return std::nullopt;
  }
}

}  // namespace

std::string Encode(const Record& record) {
  Writer writer;
  writer.Number(kFormat);
  writer.Number(static_cast<std::uint8_t>(record.index()));
  std::visit([&writer](const auto& r) { Visit(writer, r); }, record);
  return writer.Take();
}

Result<Record> Decode(std::string_view payload) {
  Reader reader(payload);
  std::uint8_t format = 0;
  std::uint8_t type = 0;
  reader.Number(format);
  reader.Number(type);
  if (reader.failed() || format != kFormat) {
    return Unreadable(StrCat("a record of ", payload.size(), " bytes in format ", format, ", known is ", kFormat));
  }
  std::optional<Record> record = EmptyRecord(type);
  if (!record.has_value()) {
    return Unreadable(StrCat("a record of the unknown type ", type));
  }
  std::visit([&reader](auto& r) { Visit(reader, r); }, *record);
  if (reader.failed()) {
    return Unreadable(StrCat(NameOf(*record), " of ", payload.size(), " bytes: ", reader.failure()));
  }
  if (REFIT_MUTANT("RX-JRNL-02/trailing-bytes", reader.left() != 0, false)) {
    return Unreadable(StrCat(NameOf(*record), " of ", payload.size(), " bytes: ", reader.left(), " too many"));
  }
  return *std::move(record);
}

}  // namespace refit::control

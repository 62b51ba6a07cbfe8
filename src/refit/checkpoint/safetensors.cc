// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0

#include "refit/checkpoint/safetensors.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <set>
#include <tuple>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "refit/checkpoint/json.h"
#include "refit/checkpoint/safetensors_writer.h"
#include "refit/device/copy.h"

namespace refit::checkpoint {
namespace {

using Kind = JsonValue::Kind;

constexpr ByteCount kLengthSize = 8;
constexpr ByteCount kHeaderMax = 100'000'000;  // as the format's own library
constexpr ByteCount kHeaderAlignment = 8;
constexpr std::string_view kMetadataKey = "__metadata__";
constexpr const char* kRemedy = "download the file again, or write it with the safetensors library";

static_assert(std::endian::native == std::endian::little, "the format is little-endian, and so are tensor bytes");

Status Bad(std::string message) { return InvalidArgument(std::move(message), kRemedy); }

// The header's text, copied out of the mapping under the guard.
Result<std::string> ReadHeader(Bytes file) {
  if (file.size() < kLengthSize) {
    return Bad(fmt::format("{} bytes are too few for a safetensors file", file.size()));
  }
  ByteCount length = 0;
  REFIT_RETURN_IF_ERROR(
      device::GuardMapped("the header length", [&] { std::memcpy(&length, file.data(), sizeof(length)); }));
  if (length > kHeaderMax) {
    return Bad(fmt::format("a header of {} bytes is larger than the {} allowed", length, kHeaderMax));
  }
  if (length > file.size() - kLengthSize) {
    return Bad(fmt::format("the header claims {} bytes and the file has {}: it is truncated", length, file.size()));
  }
  std::string header(length, '\0');
  REFIT_RETURN_IF_ERROR(
      device::GuardMapped("the header", [&] { std::memcpy(header.data(), file.data() + kLengthSize, header.size()); }));
  return header;
}

Result<SafetensorsEntry> ParseEntry(const std::string& name, const JsonValue& value, ByteCount data_begin) {
  const JsonValue* dtype = value.Find("dtype");
  const JsonValue* shape = value.Find("shape");
  const JsonValue* offsets = value.Find("data_offsets");
  if (dtype == nullptr || !dtype->is(Kind::kString) || shape == nullptr || !shape->is(Kind::kArray) ||
      offsets == nullptr || !offsets->is(Kind::kArray) || offsets->items.size() != 2) {
    return Bad(fmt::format("tensor {} lacks dtype, shape or data_offsets: {}", name, ToString(value)));
  }
  const auto known = weights::DTypeFromSafetensorsName(dtype->text);
  if (!known) {
    return Bad(fmt::format("tensor {} has the unknown dtype {}", name, ToString(*dtype)));
  }
  SafetensorsEntry entry;
  entry.spec = {.name = name, .dtype = *known, .shape = {}};
  for (const JsonValue& dimension : shape->items) {
    if (!dimension.is(Kind::kInteger) || dimension.integer < 0) {
      return Bad(fmt::format("tensor {} has the shape {}", name, ToString(*shape)));
    }
    entry.spec.shape.push_back(dimension.integer);
  }
  for (const JsonValue& offset : offsets->items) {
    if (!offset.is(Kind::kInteger) || offset.integer < 0) {
      return Bad(fmt::format("tensor {} has the data_offsets {}", name, ToString(*offsets)));
    }
  }
  // Both fit: offsets are below 2^63 and a header is small.
  entry.begin = data_begin + static_cast<ByteCount>(offsets->items[0].integer);
  entry.end = data_begin + static_cast<ByteCount>(offsets->items[1].integer);
  REFIT_ASSIGN_OR_RETURN(const ByteCount size, weights::SizeOf(entry.spec));
  if (entry.end < entry.begin || entry.end - entry.begin != size) {
    return Bad(fmt::format("tensor {} has {} bytes by dtype and shape, and the data_offsets {}",
                           weights::ToString(entry.spec), size, ToString(*offsets)));
  }
  return entry;
}

// Sorted by begin: one after the other, from the header's end to the file's.
Status CheckLayout(const std::vector<SafetensorsEntry>& entries, ByteCount data_begin, ByteCount file_size) {
  ByteCount next = data_begin;
  for (const SafetensorsEntry& entry : entries) {
    if (entry.end > file_size) {
      return Bad(fmt::format("tensor {} ends at byte {} and the file at {}: it is truncated", entry.spec.name,
                             entry.end, file_size));
    }
    if (entry.begin != next) {
      return Bad(fmt::format("tensor {} begins at byte {}, not at {}: tensors overlap or leave a hole", entry.spec.name,
                             entry.begin, next));
    }
    next = entry.end;
  }
  if (next != file_size) {
    return Bad(fmt::format("{} bytes after the last tensor belong to none", file_size - next));
  }
  return OkStatus();
}

}  // namespace

Result<std::vector<SafetensorsEntry>> ParseSafetensors(Bytes file) {
  REFIT_ASSIGN_OR_RETURN(const std::string header, ReadHeader(file));
  auto tree = ParseJson(header);
  if (!tree.ok()) {
    return Bad("header: " + tree.status().message());
  }
  if (!tree->is(Kind::kObject)) {
    return Bad("header: not a JSON object");
  }
  const ByteCount data_begin = kLengthSize + header.size();
  std::vector<SafetensorsEntry> entries;
  for (std::size_t i = 0; i < tree->keys.size(); ++i) {
    if (tree->keys[i] != kMetadataKey) {
      REFIT_ASSIGN_OR_RETURN(SafetensorsEntry entry, ParseEntry(tree->keys[i], tree->items[i], data_begin));
      entries.push_back(std::move(entry));
    }
  }
  std::sort(entries.begin(), entries.end(), [](const SafetensorsEntry& a, const SafetensorsEntry& b) {
    return std::tie(a.begin, a.end, a.spec.name) < std::tie(b.begin, b.end, b.spec.name);
  });
  REFIT_RETURN_IF_ERROR(CheckLayout(entries, data_begin, file.size()));
  return entries;
}

SafetensorsWriter::SafetensorsWriter(std::unique_ptr<FileDraft> draft, ByteCount missing)
    : draft_(std::move(draft)), missing_(missing) {}

Result<std::unique_ptr<SafetensorsWriter>> SafetensorsWriter::Create(const std::string& path,
                                                                     const std::vector<weights::TensorSpec>& specs) {
  std::string text = R"({"__metadata__":{"format":"pt"})";
  std::set<std::string_view> names;
  ByteCount offset = 0;
  for (const weights::TensorSpec& spec : specs) {
    REFIT_ASSIGN_OR_RETURN(const ByteCount size, weights::SizeOf(spec));
    if (spec.name == kMetadataKey || !names.insert(spec.name).second) {
      return InvalidArgument(fmt::format("a safetensors file cannot hold tensor {} twice", spec.name));
    }
    text += fmt::format(R"(,{}:{{"dtype":"{}","shape":[{}],"data_offsets":[{},{}]}})", Quote(spec.name),
                        weights::SafetensorsName(spec.dtype), fmt::join(spec.shape, ","), offset, offset + size);
    offset += size;
  }
  text += '}';
  text.resize(RoundUp(text.size(), kHeaderAlignment), ' ');
  const ByteCount length = text.size();
  REFIT_ASSIGN_OR_RETURN(auto draft, FileDraft::Create(path));
  REFIT_RETURN_IF_ERROR(draft->Append(std::as_bytes(std::span(&length, 1))));
  REFIT_RETURN_IF_ERROR(draft->Append(AsBytes(text)));
  return std::unique_ptr<SafetensorsWriter>(new SafetensorsWriter(std::move(draft), offset));
}

Status SafetensorsWriter::Append(Bytes bytes) {
  if (bytes.size() > missing_) {
    return InvalidArgument(fmt::format("{} bytes more than the header announced", bytes.size() - missing_));
  }
  missing_ -= bytes.size();
  return draft_->Append(bytes);
}

Status SafetensorsWriter::Finish() {
  if (missing_ != 0) {
    return InvalidArgument(fmt::format("{} bytes fewer than the header announced", missing_));
  }
  return draft_->Publish();
}

Status WriteSafetensors(const std::string& path, const std::vector<NamedTensor>& tensors) {
  std::vector<weights::TensorSpec> specs;
  for (const NamedTensor& tensor : tensors) {
    REFIT_ASSIGN_OR_RETURN(const ByteCount size, weights::SizeOf(tensor.spec));
    if (tensor.bytes.size() != size) {
      return InvalidArgument(
          fmt::format("{} needs {} bytes, not {}", weights::ToString(tensor.spec), size, tensor.bytes.size()));
    }
    specs.push_back(tensor.spec);
  }
  REFIT_ASSIGN_OR_RETURN(const auto writer, SafetensorsWriter::Create(path, specs));
  for (const NamedTensor& tensor : tensors) {
    REFIT_RETURN_IF_ERROR(writer->Append(tensor.bytes));
  }
  return writer->Finish();
}

}  // namespace refit::checkpoint

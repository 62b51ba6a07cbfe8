// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0

#include "refit/stream/bucket.h"

#include <string>

#include "refit/base/mutant.h"
#include "refit/base/str.h"
#include "refit/weights/digest_encoding.h"

namespace refit::stream {
namespace {

// A hostile bucket is refused with the number of its entry, not with a name that may hold anything.
Status Refuse(std::size_t index, std::string_view what) {
  return InvalidArgument(StrCat("bucket entry ", index, " ", what), "both ends must run the same version of refit");
}

// `filled` is the end of the entries before this one; advanced to the end of this one.
Status CheckEntry(const Bucket& bucket, std::size_t index, ByteCount& filled) {
  const Entry& entry = bucket.entries[index];
  const Result<ByteCount> tensor_size = SizeOf(entry.spec);
  if (!tensor_size.has_value()) {
    return tensor_size.status().WithContext(StrCat("bucket entry ", index));
  }
  const auto chunk_end = CheckedAdd(entry.chunk_offset, entry.chunk_size);
  if (REFIT_MUTANT("RC-BKT-14/no-chunk-bounds", !chunk_end.has_value() || *chunk_end > *tensor_size, false)) {
    return Refuse(
        index, StrCat("holds ", entry.chunk_size, " bytes at ", entry.chunk_offset, " of a tensor of ", *tensor_size));
  }
  if (REFIT_MUTANT("RC-BKT-14/empty-chunks", entry.chunk_size == 0 && *tensor_size != 0, false)) {
    return Refuse(index, StrCat("is an empty chunk of a tensor of ", *tensor_size, " bytes"));
  }
  const auto end = CheckedAdd(entry.offset, entry.chunk_size);
  if (REFIT_MUTANT("RC-BKT-14/past-used", !end.has_value() || *end > bucket.used, false)) {
    return Refuse(
        index, StrCat("has ", entry.chunk_size, " bytes at ", entry.offset, ", past the ", bucket.used, " bytes used"));
  }
  const bool is_whole = entry.chunk_size == *tensor_size;
  const ByteCount alignment = weights::ItemSize(entry.spec.dtype);
  if (REFIT_MUTANT("RC-BKT-14/no-alignment", is_whole && entry.offset % alignment != 0, false)) {
    return Refuse(index, StrCat("starts at ", entry.offset, ", not a multiple of its element size ", alignment));
  }
  if (REFIT_MUTANT("RC-BKT-14/overlap", entry.offset < filled, false)) {
    return Refuse(index, StrCat("starts at ", entry.offset, ", inside the ", filled, " bytes of those before it"));
  }
  filled = entry.offset + entry.chunk_size;
  return OkStatus();
}

}  // namespace

Status CheckBucket(const Bucket& bucket, ByteCount capacity) {
  if (REFIT_MUTANT("RC-BKT-14/entry-count", bucket.entries.size() > kMaxEntries, false)) {
    return InvalidArgument(StrCat("bucket of ", bucket.entries.size(), " entries"),
                           StrCat("send at most ", kMaxEntries));
  }
  if (REFIT_MUTANT("RC-BKT-14/past-capacity", bucket.used > capacity, false)) {
    return InvalidArgument(StrCat("bucket uses ", bucket.used, " bytes, the buffer has ", capacity),
                           "give both ends the same bucket size");
  }
  ByteCount filled = 0;
  for (std::size_t i = 0; i < bucket.entries.size(); ++i) {
    REFIT_RETURN_IF_ERROR(CheckEntry(bucket, i, filled));
  }
  return OkStatus();
}

Digest BucketDigest(const Bucket& bucket, std::span<const Digest> chunk_digests, DigestHasher& hasher) {
  REFIT_CHECK(chunk_digests.size() == bucket.entries.size(), "one digest per entry");
  hasher.Reset();
  for (std::size_t i = 0; i < bucket.entries.size(); ++i) {
    std::string bytes;
    weights::AppendSpec(bucket.entries[i].spec, bytes);
    weights::AppendNumber(bucket.entries[i].offset, bytes);
    weights::AppendDigest(chunk_digests[i], bytes);
    hasher.Update(AsBytes(bytes));
  }
  return hasher.Finish();
}

}  // namespace refit::stream

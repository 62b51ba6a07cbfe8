// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0
//
// Carries out the core's copy plans: one pass that copies and hashes (settled D7), guarded against mapped files and
// shared memory that vanish under it.

#pragma once

#include <functional>
#include <span>
#include <vector>

#include "refit/base/bytes.h"
#include "refit/base/digest.h"
#include "refit/base/status.h"
#include "refit/stream/copy_plan.h"

namespace refit::device {

inline constexpr ByteCount kHashBlock = 64 * kKiB;  // hashed right after its copy, while in the first-level caches

// Runs `touch`, which reads or writes mapped memory; a SIGBUS in it (a file truncated while mapped, /dev/shm out of
// space) becomes DATA_LOSS "`what` vanished while mapped" instead of the process's death. Not for code that allocates,
// locks or owns anything. Thread: any; nests.
Status GuardMapped(std::string_view what, const std::function<void()>& touch);

// Copies plan[i] from sources[plan[i].source] into target, and hashes the target bytes per entry, in order, when hasher
// is not null: digests[entry] is the digest of that entry's bytes (D7). Guarded. digests is sized to entry_count.
// One memory pass: each block of at most kHashBlock is copied and hashed at once.
Status RunCopies(const stream::CopyPlan& plan, std::span<const Bytes> sources, MutableBytes target,
                 std::size_t entry_count, DigestHasher* hasher, std::vector<Digest>& digests);

// The same pass with a second hash of entry 0's bytes alone, which goes on where `running` stands: the digest of a
// tensor that crosses a link in several pieces, each of which begins with its chunk.
Status RunCopiesOfChunk(const stream::CopyPlan& plan, std::span<const Bytes> sources, MutableBytes target,
                        std::size_t entry_count, DigestHasher& hasher, DigestHasher& running,
                        std::vector<Digest>& digests);

}  // namespace refit::device

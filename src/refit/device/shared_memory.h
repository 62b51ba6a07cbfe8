// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0
//
// POSIX shared-memory objects with names that say whose they are, and the load slot that torch can map.
//
// A name is "/refit-<pid>-<start time>-n<pid namespace>-<what>": every role sweeps names of dead owners at start
// (settled D2), so nothing outlives a crash for long.

#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "refit/base/bytes.h"
#include "refit/base/ids.h"
#include "refit/base/status.h"

namespace refit::device {

// One life of a process on this host: a pid alone is used again.
struct ProcessIdentity {
  std::int32_t pid = 0;
  std::uint64_t start_time = 0;  // clock ticks since boot, as in /proc/<pid>/stat
  friend bool operator==(const ProcessIdentity&, const ProcessIdentity&) = default;
};
ProcessIdentity ThisProcess();
bool IsRunning(const ProcessIdentity& process);  // false for a zombie: it maps nothing any more

// "/refit-4711-88231-n4026531836-`what`" for this process: pid, start time, pid namespace. what: letters, digits, '-'.
std::string OwnedName(std::string_view what);

// The name of `what` for one engine incarnation, never used again (RC-PAY-10). For SharedMemory::AddName. At most 59
// bytes where `what` has at most 7: torch kills a server for a longer one.
std::string IncarnationName(std::string_view what, const Incarnation& incarnation);

// Whose name it is; nothing when it is not of our form. Safe on text from outside.
std::optional<ProcessIdentity> OwnerOf(std::string_view name);

// Whether the pid in a name is of our pid namespace, so that we can tell whether its owner lives.
bool CountsPidsAsWeDo(std::string_view name);

// Removes every name in /dev/shm whose owner (pid and start time in it) is dead. Returns the names removed. Of another
// pid namespace (containers may share /dev/shm but not their pids) only what no creator holds locked.
std::vector<std::string> SweepDeadOwners();

// An object mapped into this process. Owns the mapping, and the name where it was created here.
class SharedMemory {
 public:
  // Creates, reserves every page (posix_fallocate) and maps. When space is short the error names need, free and
  // remedy (--shm-size). Mode 0600.
  static Result<std::unique_ptr<SharedMemory>> Create(std::string name, ByteCount size);
  // Maps an existing object; its size must be exactly `size`.
  static Result<std::unique_ptr<SharedMemory>> Open(std::string_view name, ByteCount size);
  ~SharedMemory();
  SharedMemory(const SharedMemory&) = delete;
  SharedMemory& operator=(const SharedMemory&) = delete;

  const std::string& name() const { return name_; }
  MutableBytes bytes() { return bytes_; }

  // A second name for the same memory (hard link): one per engine incarnation, never reused. Unlinked with the object.
  // ALREADY_EXISTS when the name is taken.
  Status AddName(std::string name);
  void RemoveName(std::string_view name);  // one that AddName gave; else nothing happens
  // Removes every name now; the memory lives as long as somebody maps it.
  void Unlink();

 private:
  enum class Origin : std::uint8_t { kCreated, kOpened };
  SharedMemory(std::string name, int descriptor, Origin origin)
      : name_(std::move(name)), file_(descriptor), origin_(origin) {}
  Status Map(ByteCount size);

  std::string name_;
  std::vector<std::string> aliases_;
  MutableBytes bytes_;
  int file_;  // kept open: its lock tells sweepers of other containers that the creator lives
  Origin origin_;
  bool unlinked_ = false;
};

// A further name for somebody's object (a hard link), removed with this value. An agent gives each engine incarnation
// names of its own, which outlive the policy worker that made the object (RC-PAY-10). NOT_FOUND when the object lost
// its name.
class SharedName {
 public:
  static Result<SharedName> Make(std::string_view existing, std::string name);
  SharedName(SharedName&& other) noexcept : name_(std::exchange(other.name_, {})) {}
  SharedName& operator=(SharedName&& other) noexcept {
    std::swap(name_, other.name_);
    return *this;
  }
  ~SharedName();
  const std::string& name() const { return name_; }

 private:
  explicit SharedName(std::string name) : name_(std::move(name)) {}
  std::string name_;
};

inline constexpr ByteCount kLoadHeaderSize = 64;  // torch's: int32 count at 0, data at 64 (settled D2)

// A load slot seen through a mapping, by whoever packs or posts. The count is torch's: 1 while we hold it, plus one per
// rank that still reads.
class LoadSlot {
 public:
  explicit LoadSlot(MutableBytes object);  // the whole object, header included
  static ByteCount ObjectSize(ByteCount capacity) { return kLoadHeaderSize + capacity; }

  MutableBytes data() { return object_.subspan(kLoadHeaderSize); }
  void Initialise();                      // count = 1; only on a new object
  void AddReaders(std::int32_t readers);  // atomically, right before a POST (RC-PAY-09)
  std::int32_t count() const;
  bool free() const { return count() == 1; }

 private:
  MutableBytes object_;
};

}  // namespace refit::device

// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0

#include "refit/runtime/doctor.h"

#include <cpuid.h>
#include <fmt/format.h>
#include <sched.h>
#include <sys/statvfs.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <string_view>

#include "refit/device/shared_memory.h"
#include "refit/transport/nixl/nixl_library.h"

namespace refit::runtime {
namespace {

constexpr std::string_view kSharedMemory = "/dev/shm";
constexpr ByteCount kSharedMemoryWanted = 256 * kMiB;  // two load slots of 4 MiB for a dozen engines, and room
constexpr std::uint32_t kCoresWanted = 2;

std::uint32_t UsableCores() {
  cpu_set_t set;
  return sched_getaffinity(0, sizeof(set), &set) == 0 ? static_cast<std::uint32_t>(CPU_COUNT(&set)) : 1;
}

// A line "MemTotal:  16384 kB" of /proc/meminfo.
ByteCount MemoryLine(std::string_view name) {
  std::ifstream file("/proc/meminfo");
  std::string key;
  ByteCount kibibytes = 0;
  std::string rest;
  while (file >> key >> kibibytes && std::getline(file, rest)) {
    if (key == name) {
      return kibibytes * kKiB;
    }
  }
  return 0;
}

std::vector<std::string> EntriesOf(std::string_view folder, std::string_view prefix) {
  std::vector<std::string> names;
  std::error_code error;
  for (std::filesystem::directory_iterator it(folder, error), end; !error && it != end; it.increment(error)) {
    std::string name = it->path().filename().string();
    if (name.starts_with(prefix)) {
      names.push_back(std::move(name));
    }
  }
  std::sort(names.begin(), names.end());
  return names;
}

std::vector<std::string> StaleObjects() {
  std::vector<std::string> stale;
  for (const std::string& name : EntriesOf(kSharedMemory, "refit-")) {
    const auto owner = device::OwnerOf("/" + name);
    if (owner.has_value() && !device::IsRunning(*owner)) {
      stale.push_back("/" + name);
    }
  }
  return stale;
}

// "nvidia0" and so on; nvidiactl and nvidia-uvm are no devices.
std::vector<std::string> GpuDevices() {
  std::vector<std::string> devices;
  for (const std::string& name : EntriesOf("/dev", "nvidia")) {
    const std::string_view number = std::string_view(name).substr(6);
    if (!number.empty() && std::all_of(number.begin(), number.end(), [](char c) { return c >= '0' && c <= '9'; })) {
      devices.push_back("/dev/" + name);
    }
  }
  return devices;
}

bool HasSha() {
  unsigned eax = 0;
  unsigned ebx = 0;
  unsigned ecx = 0;
  unsigned edx = 0;
  return __get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx) != 0 && (ebx & (1U << 29)) != 0;
}

// Loads it, which is what can go wrong; makes no agent.
void ExamineNixl(const DoctorOptions& options, DoctorReport& report) {
  if (options.nixl_library.empty()) {
    report.nixl = "not looked for (--nixl-library DIR)";
    return;
  }
  const auto library = transport::LoadNixl(options.nixl_library);
  if (!library.ok()) {
    report.nixl = library.status().message();
    report.advice.push_back(library.status().remedy());
    return;
  }
  const transport::NixlPlace& place = (*library)->place;
  report.nixl = fmt::format("{} at {}", place.version.empty() ? "of unknown version" : place.version, place.path);
}

std::vector<std::string> AdviceFor(const DoctorReport& report, const DoctorOptions& options) {
  std::vector<std::string> advice;
  if (report.shared_memory_free < kSharedMemoryWanted) {
    advice.push_back(fmt::format("{} has {} MiB free, loads want {}: start the container with a larger --shm-size",
                                 kSharedMemory, report.shared_memory_free / kMiB, kSharedMemoryWanted / kMiB));
  }
  if (report.core_count < kCoresWanted) {
    advice.push_back("one core: packing and installing take turns instead of overlapping");
  }
  if (report.engine_program.empty()) {
    advice.push_back(fmt::format("{} is missing: make build", options.engine_program));
  }
  if (report.demo_model.empty()) {
    advice.push_back("the demo's model is not cached: make demo fetches it, refit demo --random tiny needs none");
  }
  if (!report.stale_objects.empty() && options.stale == DoctorOptions::Stale::kList) {
    advice.push_back(fmt::format("{} shared-memory objects of dead processes: refit doctor --clean removes them",
                                 report.stale_objects.size()));
  }
  return advice;
}

}  // namespace

DoctorReport Examine(const DoctorOptions& options) {
  DoctorReport report;
  report.transports = {"shm", "nixl"};
  report.engine_kinds = {"reference", "attach"};
  report.core_count = UsableCores();
  report.memory_total = MemoryLine("MemTotal:");
  report.memory_available = MemoryLine("MemAvailable:");
  struct statvfs space{};
  if (statvfs(std::string(kSharedMemory).c_str(), &space) == 0) {
    report.shared_memory_total = ByteCount{space.f_blocks} * space.f_frsize;
    report.shared_memory_free = ByteCount{space.f_bavail} * space.f_frsize;
  }
  report.has_avx2 = __builtin_cpu_supports("avx2") != 0;
  report.has_fma = __builtin_cpu_supports("fma") != 0;
  report.has_sha = HasSha();
  report.gpu_devices = GpuDevices();
  std::error_code error;
  if (std::filesystem::exists(options.engine_program, error)) {
    report.engine_program = options.engine_program;
  }
  if (std::filesystem::exists(options.model_folder + "/config.json", error)) {
    report.demo_model = options.model_folder;
  }
  report.stale_objects = StaleObjects();
  if (options.stale == DoctorOptions::Stale::kRemove) {
    report.removed_objects = device::SweepDeadOwners();
  }
  report.advice = AdviceFor(report, options);
  ExamineNixl(options, report);
  return report;
}

}  // namespace refit::runtime

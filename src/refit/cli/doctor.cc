// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0

#include "refit/runtime/doctor.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <memory>
#include <string>

#include "refit/cli/cache.h"
#include "refit/cli/command.h"
#include "refit/cli/role.h"
#include "refit/observe/progress.h"

namespace refit::cli {
namespace {

struct Flags {
  Form form = Form::kText;
  bool clean = false;
  std::string nixl_library;
};

std::string DoctorAsText(const runtime::DoctorReport& report) {
  const auto line = [](std::string_view name, const std::string& value) {
    return fmt::format("{:<15}{}\n", name, value);
  };
  std::string processor;
  for (const auto& [name, has] :
       {std::pair("AVX2", report.has_avx2), std::pair("FMA", report.has_fma), std::pair("SHA", report.has_sha)}) {
    processor += fmt::format("{}{} {}", processor.empty() ? "" : ", ", name, has ? "yes" : "no");
  }
  std::string text = line("transports", fmt::format("{}", fmt::join(report.transports, ", ")));
  text += line("engine kinds", fmt::format("{}", fmt::join(report.engine_kinds, ", ")));
  text += line("refit-engine", report.engine_program.empty() ? "missing" : report.engine_program);
  text += line("demo's model", report.demo_model.empty() ? "not cached" : report.demo_model);
  text += line("cores", std::to_string(report.core_count));
  text += line("processor", processor);
  text += line("memory", fmt::format("{} available of {}", observe::FormatBytes(report.memory_available),
                                     observe::FormatBytes(report.memory_total)));
  text += line("/dev/shm", fmt::format("{} free of {}", observe::FormatBytes(report.shared_memory_free),
                                       observe::FormatBytes(report.shared_memory_total)));
  text += line("GPUs", report.gpu_devices.empty() ? "none" : fmt::format("{}", fmt::join(report.gpu_devices, ", ")));
  text += line("NIXL", report.nixl);
  text += line("stale memory",
               report.stale_objects.empty() ? "none" : fmt::format("{} objects", report.stale_objects.size()));
  for (const std::string& name : report.stale_objects) {
    text += fmt::format("  {}\n", name);
  }
  if (!report.removed_objects.empty()) {
    text += line("removed", fmt::format("{} objects", report.removed_objects.size()));
  }
  for (const std::string& advice : report.advice) {
    text += fmt::format("advice: {}\n", advice);
  }
  text.pop_back();
  return text;
}

int RunDoctor(const Flags& flags, const Invocation& invocation) {
  const runtime::DoctorReport report = runtime::Examine(
      {.engine_program = invocation.program_folder + "/refit-engine",
       .model_folder = DemoModelFolder(),
       .nixl_library = flags.nixl_library,
       .stale = flags.clean ? runtime::DoctorOptions::Stale::kRemove : runtime::DoctorOptions::Stale::kList});
  Print(flags.form == Form::kJson ? DoctorAsJson(report) : DoctorAsText(report));
  return kOk;
}

}  // namespace

Run AddDoctor(CLI::App& app, const Invocation& invocation) {
  auto flags = std::make_shared<Flags>();
  app.description("Say what this build has and what this host can do.");
  app.add_flag("--clean", flags->clean, "remove shared memory whose owners are dead");
  app.add_option("--nixl-library", flags->nixl_library, "folder of the wheel nixl-cu13, or libnixl_capi.so itself");
  AddFormFlag(app, flags->form);
  app.footer("Example:\n  refit doctor --clean");
  return [flags, &invocation] { return RunDoctor(*flags, invocation); };
}

}  // namespace refit::cli

// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0

#include <CLI/CLI.hpp>
#include <cstdio>
#include <memory>
#include <string>

#include "refit/cli/command.h"
#include "refit/cli/role.h"
#include "refit/config/schema.h"
#include "refit/runtime/model_fit.h"

namespace refit::cli {
namespace {

struct Flags {
  Form form = Form::kText;
  std::string file;
};

// RC-CFG-18, where the model lies on this machine.
Status CheckModels(const config::JobOptions& job) {
  for (const config::EngineOptions& engine : job.engines) {
    const auto fits = runtime::CheckModelFits(engine.args, engine.tp_size);
    if (!fits.ok()) {
      return fits.WithContext("engines[slot " + std::to_string(engine.slot) + "].tp");
    }
  }
  return OkStatus();
}

int RunCheck(const Flags& flags) {
  const auto job = config::ReadJobFile(flags.file);
  if (!job.has_value()) {
    return Fail(flags.form, kUsage, job.status());
  }
  if (const Status status = CheckModels(job->options); !status.ok()) {
    return Fail(flags.form, kUsage, status);
  }
  if (flags.form == Form::kJson) {
    Print(ConfigAsJson(*job));
    return kOk;
  }
  for (const std::string& note : job->notes) {
    std::fprintf(stderr, "note: %s\n", note.c_str());
  }
  std::string text = config::FormatYaml(job->resolved);
  text.pop_back();
  Print(text);
  return kOk;
}

}  // namespace

Run AddConfig(CLI::App& app, const Invocation&) {
  auto flags = std::make_shared<Flags>();
  app.description("Check a configuration file, or describe every key.");
  app.require_subcommand(1);
  auto* check = app.add_subcommand("check", "Check FILE and print it with every default filled in.");
  check->add_option("FILE", flags->file, "the job's configuration")->required();
  AddFormFlag(*check, flags->form);
  check->footer("Example:\n  refit config check job.yaml");
  auto* schema = app.add_subcommand("schema", "Print every key, its default and its meaning: docs/configuration.md.");
  AddFormFlag(*schema, flags->form);
  schema->footer("Example:\n  refit config schema > docs/configuration.md");
  app.footer("Example:\n  refit config check job.yaml");
  return [flags, check] {
    if (check->parsed()) {
      return RunCheck(*flags);
    }
    std::string page = config::SchemaAsMarkdown();
    page.pop_back();
    Print(flags->form == Form::kJson ? SchemaAsJson() : page);
    return kOk;
  };
}

}  // namespace refit::cli

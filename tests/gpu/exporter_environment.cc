// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0
//
// Forks the exporters of gpu_test before its first test.

#include <gtest/gtest.h>

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>

#include "refit/base/check.h"
#include "tests/gpu/exporter_process.h"

namespace refit::gpu_test {
namespace {

using Processes = std::map<std::string, std::unique_ptr<ExporterProcess>, std::less<>>;  // by the transport's name

class Exporters final : public ::testing::Environment {
 public:
  void SetUp() override {
    for (const char* const transport : {"cuda_ipc", "nixl"}) {
      first[transport] = std::make_unique<ExporterProcess>(transport);
      second[transport] = std::make_unique<ExporterProcess>(transport);
    }
  }
  void TearDown() override {
    nixl_reader.reset();  // while its peer lives
    first.clear();
    second.clear();
  }
  Processes first;
  Processes second;
  std::shared_ptr<transport::Transport> nixl_reader;
};

// GoogleTest owns it.
Exporters* const exporters = static_cast<Exporters*>(::testing::AddGlobalTestEnvironment(new Exporters));

ExporterProcess& Find(const Processes& processes, std::string_view transport) {
  const auto found = processes.find(transport);
  REFIT_CHECK(found != processes.end(), "for tests, and those transports, only");
  return *found->second;
}

}  // namespace

ExporterProcess& Exporter(std::string_view transport) { return Find(exporters->first, transport); }

ExporterProcess& OtherExporter(std::string_view transport) { return Find(exporters->second, transport); }

Result<std::shared_ptr<transport::Transport>> Reader(std::string_view transport) {
  if (transport == "nixl" && exporters->nixl_reader != nullptr) {
    return exporters->nixl_reader;
  }
  REFIT_ASSIGN_OR_RETURN(std::shared_ptr<transport::Transport> made, MakeTransport(transport));
  if (transport == "nixl") {
    exporters->nixl_reader = made;
  }
  return made;
}

}  // namespace refit::gpu_test

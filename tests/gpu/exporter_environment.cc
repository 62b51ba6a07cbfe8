// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0
//
// Forks the exporters of gpu_test before its first test.

#include <gtest/gtest.h>

#include <memory>

#include "refit/base/check.h"
#include "tests/gpu/exporter_process.h"

namespace refit::gpu_test {
namespace {

class Exporters final : public ::testing::Environment {
 public:
  void SetUp() override {
    first = std::make_unique<ExporterProcess>();
    second = std::make_unique<ExporterProcess>();
  }
  void TearDown() override {
    first.reset();
    second.reset();
  }
  std::unique_ptr<ExporterProcess> first;
  std::unique_ptr<ExporterProcess> second;
};

// GoogleTest owns it.
Exporters* const exporters = static_cast<Exporters*>(::testing::AddGlobalTestEnvironment(new Exporters));

}  // namespace

ExporterProcess& Exporter() {
  REFIT_CHECK(exporters->first != nullptr, "for tests only");
  return *exporters->first;
}

ExporterProcess& OtherExporter() {
  REFIT_CHECK(exporters->second != nullptr, "for tests only");
  return *exporters->second;
}

}  // namespace refit::gpu_test

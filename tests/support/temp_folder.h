// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0
//
// A folder of one test, removed at its end.

#pragma once

#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <string_view>

#include "refit/base/check.h"
#include "refit/exec/random.h"

namespace refit::test {

class TempFolder {
 public:
  TempFolder() : path_(std::filesystem::temp_directory_path() / ("refit-test-" + ToHex(exec::RandomId()))) {
    std::filesystem::create_directories(path_);
  }
  ~TempFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  TempFolder(const TempFolder&) = delete;
  TempFolder& operator=(const TempFolder&) = delete;

  std::string path() const { return path_.string(); }
  std::string operator/(std::string_view name) const { return (path_ / name).string(); }

  void Write(std::string_view name, std::string_view text) const {
    std::ofstream file(*this / name, std::ios::binary);
    file.write(text.data(), static_cast<std::streamsize>(text.size()));
    REFIT_CHECK(file.good(), "a test could not write its file");
  }
  std::string Read(std::string_view name) const {
    std::ifstream file(*this / name, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  }

 private:
  std::filesystem::path path_;
};

}  // namespace refit::test

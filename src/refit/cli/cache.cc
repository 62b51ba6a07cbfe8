// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0

#include "refit/cli/cache.h"

#include <cstdlib>

namespace refit::cli {
namespace {

std::string Variable(const char* name) {
  const char* const value = std::getenv(name);
  return value == nullptr ? std::string() : std::string(value);
}

}  // namespace

std::string CacheFolder() {
  if (const std::string folder = Variable("REFIT_CACHE"); !folder.empty()) {
    return folder;
  }
  const std::string caches = Variable("XDG_CACHE_HOME");
  return (caches.empty() ? Variable("HOME") + "/.cache" : caches) + "/refit";
}

std::string DemoModelFolder() { return CacheFolder() + "/smollm2-135m"; }

}  // namespace refit::cli

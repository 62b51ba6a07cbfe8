// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0
//
// Descriptors come from a peer. Whatever is accepted names an object of ours and nothing else, and reads as written.

#include <cstddef>
#include <cstdint>
#include <string>

#include "refit/base/check.h"
#include "refit/base/str.h"
#include "refit/transport/shm/shm_transport.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string text(reinterpret_cast<const char*>(data), size);
  const auto object = refit::transport::ParseShmDescriptor({text});
  if (object.ok()) {
    const std::string& name = object->name;
    REFIT_CHECK(name.starts_with("/refit-") && name.find('/', 1) == std::string::npos, "a path got through");
    REFIT_CHECK(name.find('\0') == std::string::npos && name.size() < 255, "a name that no file can have got through");
    REFIT_CHECK(text.starts_with(refit::StrCat("shm:", name, ":")), "the name is not what was written");
  }
  return 0;
}

// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0
//
// The other end of the nixl transport, in a process of its own, for tests that kill or stop it and for the bench.
// nixl-peer LIBRARY BYTES [ENGINE_CONFIG]: exports that many bytes with the suite's pattern, prints its address and the
// descriptor, a line each, and serves until its stdin ends.

#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "refit/transport/nixl/nixl_transport.h"
#include "tests/conformance/transport_helpers.h"

int main(int count, char** words) {
  using refit::transport::NixlTransport;
  if (count < 3) {
    return 2;
  }
  refit::transport::NixlOptions options{.library = words[1], .backend_params = {}, .ucx_tls = {}};
  if (count > 3) {
    options.backend_params["engine_config"] = words[3];
  }
  std::vector<std::byte> memory(std::strtoull(words[2], nullptr, 10));
  refit::transport::FillPattern(memory);
  const auto transport = NixlTransport::Create(options);
  if (!transport.ok()) {
    std::fprintf(stderr, "nixl-peer: %s\n", transport.status().ToString().c_str());
    return 1;
  }
  const auto descriptor = (*transport)->Export(refit::MutableBytes(memory));
  if (!descriptor.ok()) {
    std::fprintf(stderr, "nixl-peer: %s\n", descriptor.status().ToString().c_str());
    return 1;
  }
  std::printf("%s\n%s\n", (*transport)->Address().c_str(), descriptor->text.c_str());
  std::fflush(stdout);
  char ignored = 0;
  while (read(STDIN_FILENO, &ignored, 1) > 0) {
  }
  return 0;
}

// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0
//
// write-checkpoint SHAPE SEED FOLDER: a checkpoint with random weights (checkpoint/random_checkpoint.h), for scripts.

#include <cstdio>
#include <cstdlib>

#include "refit/checkpoint/random_checkpoint.h"

int main(int argc, char** argv) {
  if (argc != 4) {
    std::fputs("usage: write-checkpoint SHAPE SEED FOLDER\n", stderr);
    return 2;
  }
  const auto config = refit::checkpoint::RandomShape(argv[1]);
  const refit::Status status = config.has_value() ? refit::checkpoint::WriteRandomCheckpoint(
                                                        *config, std::strtoull(argv[2], nullptr, 10), argv[3])
                                                  : config.status();
  if (!status.ok()) {
    std::fprintf(stderr, "write-checkpoint: %s\n", status.ToString().c_str());
    return 1;
  }
  return 0;
}

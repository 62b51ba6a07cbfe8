// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0
//
// write_payload_goldens FOLDER: the payloads that tests/golden/check_payload.py reads back.

#include <cstdio>
#include <fstream>
#include <string>
#include <vector>

#include "refit/engine/sglang/payload_pickle.h"

namespace {

using refit::engine::CudaLoad;
using refit::engine::PayloadTensor;
using refit::weights::DType;

CudaLoad GoldenLoad() {
  std::string handle;
  for (int i = 0; i < 64; ++i) {
    handle += static_cast<char>(i);
  }
  return {.device_uuid = "00112233-4455-6677-8899-aabbccddeeff",
          .ipc_handle = handle,
          .load_size = 512,
          .storage_size = 512,
          .storage_offset = 0,
          .counter_name = "/refit_rc_1",
          .counter_index = 0};
}

bool Write(const std::string& path, const std::string& bytes) {
  std::ofstream file(path, std::ios::binary);
  file << bytes;
  file.close();
  return file.good();
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fputs("usage: write_payload_goldens FOLDER\n", stderr);
    return 2;
  }
  const std::string folder = argv[1];
  const std::vector<PayloadTensor> one = {{{"w", DType::kBfloat16, {2, 3}}, 0}};
  const std::vector<PayloadTensor> three = {
      {{"model.embed_tokens.weight", DType::kBfloat16, {151936, 4096}}, 0},
      {{"s", DType::kFloat32, {}}, 1244659712},
      {{"b", DType::kFloat16, {1, 2, 3, 4}}, 1244659968},
  };
  CudaLoad large = GoldenLoad();
  large.load_size = 6442450944;
  large.storage_size = 6442450944;
  large.storage_offset = 2097152;
  large.counter_index = 7;
  const refit::engine::RankPayload host = {
      .load = refit::engine::HostLoad{.shm_name = "/refit-4711-88231-e0-a", .data_size = 1244660016}, .tensors = three};

  const bool written = Write(folder + "/payload_a.pickle", refit::engine::sglang::PicklePayload({GoldenLoad(), one})) &&
                       Write(folder + "/payload_b.pickle", refit::engine::sglang::PicklePayload({large, three})) &&
                       Write(folder + "/payload_host.pickle", refit::engine::sglang::PicklePayload(host));
  return written ? 0 : 1;
}

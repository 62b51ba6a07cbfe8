// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0
//
// main() of a fuzz target where libFuzzer is not used: replays the corpus folder given as argument, then a fixed number
// of seeded mutations of it (bit flips, cuts, repeats), so that every run of the tests fuzzes a little.

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>
#include <string>
#include <vector>

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);

namespace {

constexpr int kMutations = 20000;
constexpr std::uint32_t kSeed = 20261129;

void Run(const std::string& input) {
  LLVMFuzzerTestOneInput(reinterpret_cast<const std::uint8_t*>(input.data()), input.size());
}

std::string Mutate(std::string input, std::mt19937& random) {
  const auto below = [&random](std::size_t limit) { return limit == 0 ? 0 : random() % limit; };
  for (std::size_t edits = 1 + below(4); edits > 0; --edits) {
    if (input.empty()) {
      input.push_back(static_cast<char>(below(256)));
      continue;
    }
    const std::size_t at = below(input.size());
    switch (below(5)) {
      case 0: input[at] = static_cast<char>(input[at] ^ (1 << below(8))); break;
      case 1: input[at] = static_cast<char>(below(256)); break;
      case 2: input.resize(at); break;
      case 3: input.insert(at, input.substr(at, 1 + below(16))); break;
      default: input.erase(at, 1 + below(8)); break;
    }
  }
  return input;
}

}  // namespace

int main(int argc, char** argv) {
  std::vector<std::string> corpus = {""};
  if (argc > 1 && std::filesystem::is_directory(argv[1])) {
    for (const auto& entry : std::filesystem::directory_iterator(argv[1])) {
      std::ifstream file(entry.path(), std::ios::binary);
      corpus.emplace_back(std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>());
    }
  }
  for (const std::string& input : corpus) {
    Run(input);
  }
  std::mt19937 random(kSeed);
  for (int i = 0; i < kMutations; ++i) {
    Run(Mutate(corpus[random() % corpus.size()], random));
  }
  std::printf("replayed %zu inputs and %d mutations of them, seed %u\n", corpus.size(), kMutations, kSeed);
  return 0;
}

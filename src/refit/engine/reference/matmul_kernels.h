// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0
//
// The inner loops behind matmul.h, one implementation per Arithmetic.

#pragma once

#include <cstddef>
#include <cstdint>

namespace refit::engine::reference::kernels {

// One multiplication: outputs[t * row_count + r], for the rows [row_begin, row_end).
struct Job {
  const std::uint16_t* weights;
  std::size_t row_count;
  std::size_t column_count;
  const float* inputs;  // as PackAvx2 leaves them for the AVX2 kernel, plain otherwise
  std::size_t token_count;
  float* outputs;
};

// A group of 16 columns becomes its 8 even ones and then its 8 odd ones, so that two bfloat16 in one 32-bit lane are
// widened by one shift and one mask; columns after the last whole group keep their order.
void PackAvx2(const float* inputs, std::size_t token_count, std::size_t column_count, float* packed);

#if defined(__x86_64__)
void MultiplyAvx2(const Job& job, std::size_t row_begin, std::size_t row_end);
float DotAvx2(const float* a, const float* b, std::size_t count);
void AddScaledAvx2(float scale, const float* from, std::size_t count, float* into);
#endif

void MultiplyScalar(const Job& job, std::size_t row_begin, std::size_t row_end);

}  // namespace refit::engine::reference::kernels

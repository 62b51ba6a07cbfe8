// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0

#include "refit/engine/reference/matmul_kernels.h"

#include <algorithm>

#include "refit/engine/reference/convert.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace refit::engine::reference::kernels {
namespace {

constexpr std::size_t kGroup = 16;  // columns

}  // namespace

void PackAvx2(const float* inputs, std::size_t token_count, std::size_t column_count, float* packed) {
  for (std::size_t token = 0; token < token_count; ++token) {
    const float* from = inputs + token * column_count;
    float* into = packed + token * column_count;
    std::size_t column = 0;
    for (; column + kGroup <= column_count; column += kGroup) {
      for (std::size_t i = 0; i < kGroup / 2; ++i) {
        into[column + i] = from[column + 2 * i];
        into[column + kGroup / 2 + i] = from[column + 2 * i + 1];
      }
    }
    std::copy(from + column, from + column_count, into + column);
  }
}

void MultiplyScalar(const Job& job, std::size_t row_begin, std::size_t row_end) {
  for (std::size_t row = row_begin; row < row_end; ++row) {
    const std::uint16_t* weights = job.weights + row * job.column_count;
    for (std::size_t token = 0; token < job.token_count; ++token) {
      const float* input = job.inputs + token * job.column_count;
      float sum = 0;
      for (std::size_t column = 0; column < job.column_count; ++column) {
        sum += FromBfloat16(weights[column]) * input[column];
      }
      job.outputs[token * job.row_count + row] = sum;
    }
  }
}

#if defined(__x86_64__)
#define REFIT_AVX2 __attribute__((target("avx2,fma")))

namespace {

REFIT_AVX2 inline float Sum(__m256 lanes) {
  const __m128 four = _mm_add_ps(_mm256_castps256_ps128(lanes), _mm256_extractf128_ps(lanes, 1));
  const __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_add_ss(two, _mm_shuffle_ps(two, two, 1)));
}

// kRows rows times kTokens tokens, from `row` and `token` on; everything stays in registers.
template <std::size_t kRows, std::size_t kTokens>
REFIT_AVX2 void Tile(const Job& job, std::size_t row, std::size_t token) {
  const std::size_t columns = job.column_count;
  const std::uint16_t* weights = job.weights + row * columns;
  const float* inputs = job.inputs + token * columns;
  const __m256i odd_mask = _mm256_set1_epi32(static_cast<int>(0xFFFF0000U));
  __m256 sums[kRows][kTokens];
#pragma GCC unroll 8
  for (std::size_t r = 0; r < kRows; ++r) {
#pragma GCC unroll 8
    for (std::size_t t = 0; t < kTokens; ++t) {
      sums[r][t] = _mm256_setzero_ps();
    }
  }
  std::size_t column = 0;
  for (; column + kGroup <= columns; column += kGroup) {
    __m256 even[kRows];
    __m256 odd[kRows];
#pragma GCC unroll 8
    for (std::size_t r = 0; r < kRows; ++r) {
      const __m256i pair = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(weights + r * columns + column));
      even[r] = _mm256_castsi256_ps(_mm256_slli_epi32(pair, 16));
      odd[r] = _mm256_castsi256_ps(_mm256_and_si256(pair, odd_mask));
    }
#pragma GCC unroll 8
    for (std::size_t t = 0; t < kTokens; ++t) {
      const __m256 even_input = _mm256_loadu_ps(inputs + t * columns + column);
      const __m256 odd_input = _mm256_loadu_ps(inputs + t * columns + column + kGroup / 2);
#pragma GCC unroll 8
      for (std::size_t r = 0; r < kRows; ++r) {
        sums[r][t] = _mm256_fmadd_ps(even[r], even_input, sums[r][t]);
        sums[r][t] = _mm256_fmadd_ps(odd[r], odd_input, sums[r][t]);
      }
    }
  }
#pragma GCC unroll 8
  for (std::size_t r = 0; r < kRows; ++r) {
#pragma GCC unroll 8
    for (std::size_t t = 0; t < kTokens; ++t) {
      float sum = Sum(sums[r][t]);
      for (std::size_t rest = column; rest < columns; ++rest) {
        sum += FromBfloat16(weights[r * columns + rest]) * inputs[t * columns + rest];
      }
      job.outputs[(token + t) * job.row_count + row + r] = sum;
    }
  }
}

template <std::size_t kRows, std::size_t kTokens>
REFIT_AVX2 std::size_t TileRows(const Job& job, std::size_t row, std::size_t row_end, std::size_t token) {
  for (; row + kRows <= row_end; row += kRows) {
    Tile<kRows, kTokens>(job, row, token);
  }
  return row;
}

}  // namespace

REFIT_AVX2 void MultiplyAvx2(const Job& job, std::size_t row_begin, std::size_t row_end) {
  constexpr std::size_t kRowBlock = 16;  // its weights stay in the first-level cache while the tokens pass by
  for (std::size_t begin = row_begin; begin < row_end; begin += kRowBlock) {
    const std::size_t end = std::min(begin + kRowBlock, row_end);
    std::size_t token = 0;
    for (; token + 4 <= job.token_count; token += 4) {
      TileRows<1, 4>(job, TileRows<2, 4>(job, begin, end, token), end, token);
    }
    for (; token < job.token_count; ++token) {
      TileRows<1, 1>(job, TileRows<4, 1>(job, begin, end, token), end, token);
    }
  }
}

REFIT_AVX2 float DotAvx2(const float* a, const float* b, std::size_t count) {
  __m256 sums = _mm256_setzero_ps();
  std::size_t i = 0;
  for (; i + 8 <= count; i += 8) {
    sums = _mm256_fmadd_ps(_mm256_loadu_ps(a + i), _mm256_loadu_ps(b + i), sums);
  }
  float sum = Sum(sums);
  for (; i < count; ++i) {
    sum += a[i] * b[i];
  }
  return sum;
}

REFIT_AVX2 void AddScaledAvx2(float scale, const float* from, std::size_t count, float* into) {
  const __m256 factor = _mm256_set1_ps(scale);
  std::size_t i = 0;
  for (; i + 8 <= count; i += 8) {
    _mm256_storeu_ps(into + i, _mm256_fmadd_ps(factor, _mm256_loadu_ps(from + i), _mm256_loadu_ps(into + i)));
  }
  for (; i < count; ++i) {
    into[i] += scale * from[i];
  }
}
#endif  // x86_64

}  // namespace refit::engine::reference::kernels

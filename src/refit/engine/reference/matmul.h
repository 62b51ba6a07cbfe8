// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0
//
// The arithmetic of the forward pass: bfloat16 matrices times float32 vectors. AVX2 with FMA where the processor has
// them, plain loops elsewhere; both sum in float32, in different orders.

#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

namespace refit::engine::reference {

enum class Arithmetic : std::uint8_t { kScalar, kAvx2 };
Arithmetic BestArithmetic();  // of this processor

float Dot(Arithmetic arithmetic, const float* a, const float* b, std::size_t count);
void AddScaled(Arithmetic arithmetic, float scale, const float* from, std::size_t count, float* into);

// Thread: one caller. The workers live as long as the object.
class Multiplier {
 public:
  explicit Multiplier(std::size_t thread_count, Arithmetic arithmetic = BestArithmetic());
  ~Multiplier();
  Multiplier(const Multiplier&) = delete;
  Multiplier& operator=(const Multiplier&) = delete;

  Arithmetic arithmetic() const { return arithmetic_; }

  // outputs[t * rows + r] = sum over c of weights[r * columns + c] * inputs[t * columns + c].
  // Weights are read once per call, whatever the number of tokens.
  void Multiply(const std::uint16_t* weights, std::size_t rows, std::size_t columns, const float* inputs,
                std::size_t token_count, float* outputs);

 private:
  class Workers;
  Arithmetic arithmetic_;
  std::vector<float> packed_;  // inputs, rearranged for the vector unit
  std::unique_ptr<Workers> workers_;
};

}  // namespace refit::engine::reference

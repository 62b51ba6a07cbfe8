// Copyright 2026 The refit authors
// SPDX-License-Identifier: Apache-2.0

#include "refit/engine/reference/matmul.h"

#include <algorithm>
#include <atomic>
#include <thread>

#include "refit/engine/reference/matmul_kernels.h"

namespace refit::engine::reference {
namespace {

constexpr std::size_t kWorthSharing = 1 << 17;  // multiplications; less is done before a second thread wakes up

void RunRows(Arithmetic arithmetic, const kernels::Job& job, std::size_t row_begin, std::size_t row_end) {
#if defined(__x86_64__)
  if (arithmetic == Arithmetic::kAvx2) {
    kernels::MultiplyAvx2(job, row_begin, row_end);
    return;
  }
#endif
  static_cast<void>(arithmetic);
  kernels::MultiplyScalar(job, row_begin, row_end);
}

}  // namespace

Arithmetic BestArithmetic() {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx2") != 0 && __builtin_cpu_supports("fma") != 0) {
    return Arithmetic::kAvx2;
  }
#endif
  return Arithmetic::kScalar;
}

float Dot(Arithmetic arithmetic, const float* a, const float* b, std::size_t count) {
#if defined(__x86_64__)
  if (arithmetic == Arithmetic::kAvx2) {
    return kernels::DotAvx2(a, b, count);
  }
#endif
  static_cast<void>(arithmetic);
  float sum = 0;
  for (std::size_t i = 0; i < count; ++i) {
    sum += a[i] * b[i];
  }
  return sum;
}

void AddScaled(Arithmetic arithmetic, float scale, const float* from, std::size_t count, float* into) {
#if defined(__x86_64__)
  if (arithmetic == Arithmetic::kAvx2) {
    kernels::AddScaledAvx2(scale, from, count, into);
    return;
  }
#endif
  static_cast<void>(arithmetic);
  for (std::size_t i = 0; i < count; ++i) {
    into[i] += scale * from[i];
  }
}

// Rows of one job, shared out evenly: worker i takes part i + 1, the caller part 0.
class Multiplier::Workers {
 public:
  Workers(std::size_t count, Arithmetic arithmetic) : arithmetic_(arithmetic) {
    for (std::size_t i = 0; i < count; ++i) {
      threads_.emplace_back([this, i] { Loop(i + 1); });
    }
  }
  ~Workers() {
    stopping_ = true;
    Announce();
    for (std::thread& thread : threads_) {
      thread.join();
    }
  }
  Workers(const Workers&) = delete;
  Workers& operator=(const Workers&) = delete;

  void Run(const kernels::Job& job) {
    job_ = job;
    left_.store(threads_.size(), std::memory_order_relaxed);
    Announce();
    RunPart(0);
    for (std::size_t left = left_.load(std::memory_order_acquire); left != 0;
         left = left_.load(std::memory_order_acquire)) {
      left_.wait(left, std::memory_order_acquire);
    }
  }

 private:
  void Announce() {
    round_.fetch_add(1, std::memory_order_release);
    round_.notify_all();
  }
  void RunPart(std::size_t part) {
    const std::size_t parts = threads_.size() + 1;
    RunRows(arithmetic_, job_, job_.row_count * part / parts, job_.row_count * (part + 1) / parts);
  }
  void Loop(std::size_t part) {
    for (std::uint32_t seen = 0;;) {
      round_.wait(seen, std::memory_order_acquire);
      seen = round_.load(std::memory_order_acquire);
      if (stopping_) {
        return;
      }
      RunPart(part);
      if (left_.fetch_sub(1, std::memory_order_acq_rel) == 1) {
        left_.notify_one();
      }
    }
  }

  const Arithmetic arithmetic_;
  kernels::Job job_ = {};
  bool stopping_ = false;  // published by round_
  std::atomic<std::uint32_t> round_ = 0;
  std::atomic<std::size_t> left_ = 0;
  std::vector<std::thread> threads_;
};

Multiplier::Multiplier(std::size_t thread_count, Arithmetic arithmetic) : arithmetic_(arithmetic) {
  if (thread_count > 1) {
    workers_ = std::make_unique<Workers>(thread_count - 1, arithmetic);
  }
}
Multiplier::~Multiplier() = default;

void Multiplier::Multiply(const std::uint16_t* weights, std::size_t rows, std::size_t columns, const float* inputs,
                          std::size_t token_count, float* outputs) {
  kernels::Job job = {weights, rows, columns, inputs, token_count, outputs};
  if (arithmetic_ == Arithmetic::kAvx2) {
    packed_.resize(std::max(packed_.size(), token_count * columns));
    kernels::PackAvx2(inputs, token_count, columns, packed_.data());
    job.inputs = packed_.data();
  }
  if (workers_ != nullptr && rows * columns * token_count >= kWorthSharing) {
    workers_->Run(job);
  } else {
    RunRows(arithmetic_, job, 0, rows);
  }
}

}  // namespace refit::engine::reference

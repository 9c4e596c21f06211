#include <algorithm>
#include <cmath>

#include "backend/cpu/cpu_ops.h"
#include "backend/cpu/dropout.h"
#include "backend/ops/mixed_rows_shape.h"

namespace megatron {

namespace {

constexpr std::int64_t kChunk = 1024;  // factors kept on the stack at a time; a multiple of kDropoutBlock

float sigmoid(float x) {
  return 1.0f / (1.0f + std::exp(-x));
}

/// Factors of the parts of a row; `slope` is the derivative of b's weight by its logit.
struct RowWeights {
  float a, b, slope;
};

template <class T>
RowWeights weights_of(const MixedRows<T>& at, std::int64_t row) {
  const float* logits = at.logits + row * at.logits_each;
  const auto logit = [&](std::int64_t i) { return logits[i] + (at.bias == nullptr ? 0.0f : wide(at.bias[i])); };
  const float x = at.two() ? logit(1) - logit(0) : logit(0);
  const float b = sigmoid(x), rest = sigmoid(-x);
  return {at.two() ? rest : 1.0f, b, b * rest};
}

// Not inline: inside their callers GCC 12 does not vectorise them for f16.

template <class T>
[[gnu::noinline]] void mix(const T* a, const T* b, RowWeights weights, T* y, std::int64_t count) {
#pragma omp simd
  for (std::int64_t i = 0; i < count; ++i) y[i] = narrow<T>(weights.a * wide(a[i]) + weights.b * wide(b[i]));
}

template <class T>
[[gnu::noinline]] void scale_to(const T* x, float factor, T* y, std::int64_t count) {
#pragma omp simd
  for (std::int64_t i = 0; i < count; ++i) y[i] = narrow<T>(factor * wide(x[i]));
}

/// dy · b.
template <class T>
[[gnu::noinline]] float product(const T* dy, const T* b, std::int64_t count) {
  float sum = 0;
#pragma omp simd reduction(+ : sum)
  for (std::int64_t i = 0; i < count; ++i) sum += wide(dy[i]) * wide(b[i]);
  return sum;
}

/// dy · (b - a).
template <class T>
[[gnu::noinline]] float product_with_difference(const T* dy, const T* b, const T* a, std::int64_t count) {
  float sum = 0;
#pragma omp simd reduction(+ : sum)
  for (std::int64_t i = 0; i < count; ++i) sum += wide(dy[i]) * (wide(b[i]) - wide(a[i]));
  return sum;
}

template <class T>
void mix_back(const MixRowsBackwardShape<T>& at, std::int64_t row) {
  const RowWeights weights = weights_of<T>(at, row);
  const std::int64_t first = row * at.columns;
  const T *dy = at.dy + first, *b = at.b + first;
  if (at.two()) {
    const float gradient = weights.slope * product_with_difference(dy, b, at.a + first, at.columns);
    at.dlogits[2 * row] = -gradient;
    at.dlogits[2 * row + 1] = gradient;
    scale_to(dy, weights.a, at.da + first, at.columns);
  } else {
    at.dlogits[row] = weights.slope * product(dy, b, at.columns);
  }
  scale_to(dy, weights.b, at.db + first, at.columns);
}

/// factors[i] of elements first_index + i of a row; first_index is a multiple of kDropoutBlock.
template <class T>
void jitter_factors(const JitterRowsShape<T>& at, std::int64_t row, std::int64_t first_index, std::int64_t count,
                    float* factors) {
  alignas(64) std::uint16_t draws[kDropoutBlock];
  const DropoutRow mask_row{.key = at.key, .position = at.position_of(row), .head = 0, .sample = at.sample_of(row)};
  for (std::int64_t i = 0; i < count; i += kDropoutBlock) {
    dropout_draws(mask_row, static_cast<std::uint32_t>((first_index + i) / kDropoutLanes), draws);
    const std::int64_t taken = std::min(count - i, kDropoutBlock);
    for (std::int64_t j = 0; j < taken; ++j) factors[i + j] = at.factor(draws[j]);
  }
}

template <class T>
[[gnu::noinline]] void multiply(const T* x, const float* factors, bool accumulate, T* y, std::int64_t count) {
  if (accumulate) {
#pragma omp simd
    for (std::int64_t i = 0; i < count; ++i) y[i] = narrow<T>(wide(y[i]) + factors[i] * wide(x[i]));
  } else {
#pragma omp simd
    for (std::int64_t i = 0; i < count; ++i) y[i] = narrow<T>(factors[i] * wide(x[i]));
  }
}

}  // namespace

void CpuOps::mix_rows_forward(const MixRowsForwardArgs& args) {
  with_activation_type("mix_rows_forward", args.b.dtype(), [&]<class T>(T) {
    const MixRowsForwardShape<T> at(args);
    team_.rows(at.rows, at.columns, [&](std::int64_t first, std::int64_t last) {
      for (std::int64_t row = first; row < last; ++row) {
        const std::int64_t begin = row * at.columns;
        mix(at.a + begin, at.b + begin, weights_of<T>(at, row), at.y + begin, at.columns);
      }
    });
  });
}

void CpuOps::mix_rows_backward(const MixRowsBackwardArgs& args) {
  with_activation_type("mix_rows_backward", args.b.dtype(), [&]<class T>(T) {
    const MixRowsBackwardShape<T> at(args);
    team_.rows(at.rows, at.columns, [&](std::int64_t first, std::int64_t last) {
      for (std::int64_t row = first; row < last; ++row) mix_back(at, row);
    });
  });
}

void CpuOps::jitter_rows(const JitterRowsArgs& args) {
  with_activation_type("jitter_rows", args.x.dtype(), [&]<class T>(T) {
    const JitterRowsShape<T> at(args);
    team_.rows(at.rows, at.columns, [&](std::int64_t top, std::int64_t bottom) {
      alignas(64) float factors[kChunk];
      std::fill(factors, factors + kChunk, 1.0f);
      for (std::int64_t row = top; row < bottom; ++row) {
        for (std::int64_t first = 0; first < at.columns; first += kChunk) {
          const std::int64_t count = std::min(kChunk, at.columns - first), begin = row * at.columns + first;
          if (at.positions != nullptr) jitter_factors(at, row, first, count, factors);
          multiply(at.x + begin, factors, at.accumulate, at.y + begin, count);
        }
      }
    });
  });
}

}  // namespace megatron

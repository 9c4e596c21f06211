#include <algorithm>
#include <cmath>
#include <limits>

#include "backend/cpu/cpu_ops.h"
#include "backend/cpu/vector_math.h"
#include "backend/ops/arguments.h"

namespace megatron {

namespace {

/// How many of the local columns are in the vocabulary; the rest is padding.
std::int64_t real_columns(std::int64_t columns, std::int64_t first_column, std::int64_t vocab_size) {
  return std::clamp<std::int64_t>(vocab_size - first_column, 0, columns);
}

template <class T>
float row_maximum(const T* logits, std::int64_t count) {
  float maximum = -std::numeric_limits<float>::infinity();
#pragma omp simd reduction(max : maximum)
  for (std::int64_t i = 0; i < count; ++i) maximum = wide(logits[i]) > maximum ? wide(logits[i]) : maximum;
  return maximum;
}

template <class T>
float row_sum_exp(const T* logits, std::int64_t count, float maximum) {
  // A vocabulary's worth of float additions would cost digits of the loss; blocks of them added in double do not.
  constexpr std::int64_t block = 1024;
  double sum = 0;
  for (std::int64_t first = 0; first < count; first += block) {
    const std::int64_t end = std::min(first + block, count);
    float partial = 0;
#pragma omp simd reduction(+ : partial)
    for (std::int64_t i = first; i < end; ++i) partial += vector_exp(wide(logits[i]) - maximum);
    sum += static_cast<double>(partial);
  }
  return static_cast<float>(sum);
}

template <class T>
void local_statistics(const ThreadTeam& team, const CrossEntropyLocalArgs& args) {
  const RowsOf size(args.logits);
  const std::int64_t count = real_columns(size.columns, args.first_column, args.vocab_size);
  const T* logits = elements_of<T>("cross_entropy_local", args.logits, size.elements());
  const std::int32_t* targets = elements_of<std::int32_t>("cross_entropy_local", args.targets, size.rows);
  float* maximum = elements_of<float>("cross_entropy_local", args.maximum, size.rows);
  float* sum_exp = elements_of<float>("cross_entropy_local", args.sum_exp, size.rows);
  float* target_logit = elements_of<float>("cross_entropy_local", args.target_logit, size.rows);
  team.rows(size.rows, size.columns, [&](std::int64_t first, std::int64_t last) {
    for (std::int64_t row = first; row < last; ++row) {
      const T* values = logits + row * size.columns;
      maximum[row] = row_maximum(values, count);
      sum_exp[row] = row_sum_exp(values, count, maximum[row]);
      const std::int64_t target = targets[row] - args.first_column;
      target_logit[row] = target >= 0 && target < count ? wide(values[target]) : 0.0f;
    }
  });
}

template <class T>
void differentiate(const ThreadTeam& team, const CrossEntropyBackwardArgs& args) {
  const RowsOf size(args.logits);
  const std::int64_t count = real_columns(size.columns, args.first_column, args.vocab_size);
  T* logits = elements_of<T>("cross_entropy_backward", args.logits, size.elements());
  const std::int32_t* targets = elements_of<std::int32_t>("cross_entropy_backward", args.targets, size.rows);
  const float* maximum = elements_of<float>("cross_entropy_backward", args.maximum, size.rows);
  const float* sum_exp = elements_of<float>("cross_entropy_backward", args.sum_exp, size.rows);
  const float* weights = optional_elements_of<float>("cross_entropy_backward", args.weights, size.rows);
  team.rows(size.rows, size.columns, [&](std::int64_t first, std::int64_t last) {
    for (std::int64_t row = first; row < last; ++row) {
      T* values = logits + row * size.columns;
      const float factor = weights ? weights[row] * args.scale : args.scale;
      const float probability_factor = factor / sum_exp[row], row_max = maximum[row];
      const std::int64_t target = targets[row] - args.first_column;
      const bool here = target >= 0 && target < count;
      // Before the row is overwritten, so that it is rounded once.
      const float target_gradient =
          here ? vector_exp(wide(values[target]) - row_max) * probability_factor - factor : 0.0f;
#pragma omp simd
      for (std::int64_t i = 0; i < count; ++i) {
        values[i] = narrow<T>(vector_exp(wide(values[i]) - row_max) * probability_factor);
      }
      std::fill(values + count, values + size.columns, T{});
      if (here) values[target] = narrow<T>(target_gradient);
    }
  });
}

}  // namespace

void CpuOps::cross_entropy_local(const CrossEntropyLocalArgs& args) {
  with_activation_type("cross_entropy_local", args.logits.dtype(),
                       [&]<class T>(T) { local_statistics<T>(team_, args); });
}

void CpuOps::cross_entropy_rescale(const CrossEntropyRescaleArgs& args) {
  const std::int64_t n = args.maximum.elements();
  const float* local = elements_of<float>("cross_entropy_rescale", args.local_maximum, n);
  const float* maximum = elements_of<float>("cross_entropy_rescale", args.maximum, n);
  float* sum_exp = elements_of<float>("cross_entropy_rescale", args.sum_exp, n);
#pragma omp simd
  for (std::int64_t i = 0; i < n; ++i) sum_exp[i] *= vector_exp(local[i] - maximum[i]);
}

void CpuOps::cross_entropy_loss(const CrossEntropyLossArgs& args) {
  const std::int64_t n = args.maximum.elements();
  const float* maximum = elements_of<float>("cross_entropy_loss", args.maximum, n);
  const float* sum_exp = elements_of<float>("cross_entropy_loss", args.sum_exp, n);
  const float* target_logit = elements_of<float>("cross_entropy_loss", args.target_logit, n);
  const float* weights = optional_elements_of<float>("cross_entropy_loss", args.weights, n);
  float* losses = optional_elements_of<float>("cross_entropy_loss", args.losses, n);
  double* total = f64_scalar("cross_entropy_loss", args.total);
  double sum = 0;
  for (std::int64_t i = 0; i < n; ++i) {
    const double above_target = static_cast<double>(maximum[i]) - static_cast<double>(target_logit[i]);
    const double loss = above_target + std::log(static_cast<double>(sum_exp[i]));
    sum += weights ? static_cast<double>(weights[i]) * loss : loss;
    if (losses) losses[i] = static_cast<float>(loss);
  }
  *total += sum;
}

void CpuOps::cross_entropy_backward(const CrossEntropyBackwardArgs& args) {
  with_activation_type("cross_entropy_backward", args.logits.dtype(),
                       [&]<class T>(T) { differentiate<T>(team_, args); });
}

}  // namespace megatron

#include <algorithm>
#include <cmath>

#include "cpu/cpu_ops.h"
#include "ops/arguments.h"

namespace megatron {

namespace {

/// The two row sums that the input gradient needs, while dgamma and dbeta are added to.
struct BackwardSums {
  float gradient, gradient_times_normal;
};

/// With several threads the two halves of this go their own ways, over rows and over columns.
template <class T, bool with_sums, bool with_parameters>
BackwardSums accumulate_row(const T* dy, const T* x, const T* gamma, float mean, float rstd, float* dgamma,
                            float* dbeta, std::int64_t columns) {
  float sum = 0, product_sum = 0;
#pragma omp simd reduction(+ : sum, product_sum)
  for (std::int64_t i = 0; i < columns; ++i) {
    const float normal = (wide(x[i]) - mean) * rstd;
    const float gradient = wide(dy[i]) * wide(gamma[i]);
    if constexpr (with_sums) {
      sum += gradient;
      product_sum += gradient * normal;
    }
    if constexpr (with_parameters) {
      dgamma[i] += wide(dy[i]) * normal;
      dbeta[i] += wide(dy[i]);
    }
  }
  return {sum, product_sum};
}

template <class T, bool with_residual>
void input_gradient_row(const T* dy, const T* x, const T* gamma, const T* residual_gradient, float mean, float rstd,
                        BackwardSums sums, T* dx, std::int64_t columns) {
  const float reciprocal = 1.0f / static_cast<float>(columns);
  const float mean_gradient = sums.gradient * reciprocal, mean_product = sums.gradient_times_normal * reciprocal;
#pragma omp simd
  for (std::int64_t i = 0; i < columns; ++i) {
    const float normal = (wide(x[i]) - mean) * rstd;
    const float gradient = rstd * (wide(dy[i]) * wide(gamma[i]) - mean_gradient - normal * mean_product);
    dx[i] = narrow<T>(with_residual ? wide(residual_gradient[i]) + gradient : gradient);
  }
}

template <class T>
void forward(const Team& team, const LayerNormForwardArgs& args) {
  const RowsOf size(args.x);
  const std::int64_t columns = size.columns;
  const T* x = elements_of<T>("layer_norm_forward", args.x, size.elements());
  const T* gamma = elements_of<T>("layer_norm_forward", args.gamma, columns);
  const T* beta = elements_of<T>("layer_norm_forward", args.beta, columns);
  T* y = elements_of<T>("layer_norm_forward", args.y, size.elements());
  float* means = elements_of<float>("layer_norm_forward", args.mean, size.rows);
  float* rstds = elements_of<float>("layer_norm_forward", args.rstd, size.rows);
  const float reciprocal = 1.0f / static_cast<float>(columns);
  const auto normalize = [&](std::int64_t row) {
    const T* in = x + row * columns;
    T* out = y + row * columns;
    // The variance from deviations, not from E[x²] - E[x]²: a common offset of a row must not cost digits. The first
    // mean's own rounding is put right by the mean of the deviations from it.
    float sum = 0;
#pragma omp simd reduction(+ : sum)
    for (std::int64_t i = 0; i < columns; ++i) sum += wide(in[i]);
    const float first_mean = sum * reciprocal;
    float deviation_sum = 0, square_sum = 0;
#pragma omp simd reduction(+ : deviation_sum, square_sum)
    for (std::int64_t i = 0; i < columns; ++i) {
      const float deviation = wide(in[i]) - first_mean;
      deviation_sum += deviation;
      square_sum += deviation * deviation;
    }
    const float correction = deviation_sum * reciprocal;
    const float variance = std::max(square_sum * reciprocal - correction * correction, 0.0f);
    const float mean = first_mean + correction, rstd = 1.0f / std::sqrt(variance + args.epsilon);
#pragma omp simd
    for (std::int64_t i = 0; i < columns; ++i) {
      out[i] = narrow<T>((wide(in[i]) - mean) * rstd * wide(gamma[i]) + wide(beta[i]));
    }
    means[row] = mean;
    rstds[row] = rstd;
  };
  team.rows(size.rows, columns, [&](std::int64_t first, std::int64_t last) {
    for (std::int64_t row = first; row < last; ++row) normalize(row);
  });
}

template <class T>
void backward(const Team& team, const LayerNormBackwardArgs& args) {
  const RowsOf size(args.x);
  const std::int64_t columns = size.columns;
  const T* dy = elements_of<T>("layer_norm_backward", args.dy, size.elements());
  const T* x = elements_of<T>("layer_norm_backward", args.x, size.elements());
  const T* gamma = elements_of<T>("layer_norm_backward", args.gamma, columns);
  const float* means = elements_of<float>("layer_norm_backward", args.mean, size.rows);
  const float* rstds = elements_of<float>("layer_norm_backward", args.rstd, size.rows);
  const T* residual = optional_elements_of<T>("layer_norm_backward", args.residual_gradient, size.elements());
  T* dx = elements_of<T>("layer_norm_backward", args.dx, size.elements());
  float* dgamma = elements_of<float>("layer_norm_backward", args.dgamma, columns);
  float* dbeta = elements_of<float>("layer_norm_backward", args.dbeta, columns);
  const auto input_gradient = residual ? input_gradient_row<T, true> : input_gradient_row<T, false>;
  const auto differentiate = [&](std::int64_t row, auto accumulate) {
    const std::int64_t at = row * columns;
    const float mean = means[row], rstd = rstds[row];
    const BackwardSums sums = accumulate(dy + at, x + at, gamma, mean, rstd, dgamma, dbeta, columns);
    input_gradient(dy + at, x + at, gamma, residual ? residual + at : nullptr, mean, rstd, sums, dx + at, columns);
  };
  if (!team.worth(size.elements())) {
    for (std::int64_t row = 0; row < size.rows; ++row) differentiate(row, accumulate_row<T, true, true>);
    return;
  }
  // The parameters' gradients first: dx may lie on dy.
  team.columns(size.rows, columns, [&](std::int64_t first, std::int64_t last) {
    for (std::int64_t row = 0; row < size.rows; ++row) {
      const std::int64_t at = row * columns + first;
      accumulate_row<T, false, true>(dy + at, x + at, gamma + first, means[row], rstds[row], dgamma + first,
                                     dbeta + first, last - first);
    }
  });
  team.rows(size.rows, columns, [&](std::int64_t first, std::int64_t last) {
    for (std::int64_t row = first; row < last; ++row) differentiate(row, accumulate_row<T, true, false>);
  });
}

}  // namespace

void CpuOps::layer_norm_forward(const LayerNormForwardArgs& args) {
  with_activation_type("layer_norm_forward", args.x.dtype(), [&]<class T>(T) { forward<T>(team_, args); });
}

void CpuOps::layer_norm_backward(const LayerNormBackwardArgs& args) {
  with_activation_type("layer_norm_backward", args.x.dtype(), [&]<class T>(T) { backward<T>(team_, args); });
}

}  // namespace megatron

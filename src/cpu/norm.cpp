#include <algorithm>
#include <cmath>

#include "cpu/arguments.h"
#include "cpu/cpu_ops.h"

namespace megatron {

namespace {

/// The two row sums that the input gradient needs, while dgamma and dbeta are added to.
struct BackwardSums {
  float gradient, gradient_times_normal;
};

/// With several threads the two halves of this go their own ways, over rows and over columns.
template <bool with_sums, bool with_parameters>
BackwardSums accumulate_row(const float* dy, const float* x, const float* gamma, float mean, float rstd, float* dgamma,
                            float* dbeta, std::int64_t columns) {
  float sum = 0, product_sum = 0;
#pragma omp simd reduction(+ : sum, product_sum)
  for (std::int64_t i = 0; i < columns; ++i) {
    const float normal = (x[i] - mean) * rstd;
    const float gradient = dy[i] * gamma[i];
    if constexpr (with_sums) {
      sum += gradient;
      product_sum += gradient * normal;
    }
    if constexpr (with_parameters) {
      dgamma[i] += dy[i] * normal;
      dbeta[i] += dy[i];
    }
  }
  return {sum, product_sum};
}

template <bool with_residual>
void input_gradient_row(const float* dy, const float* x, const float* gamma, const float* residual_gradient, float mean,
                        float rstd, BackwardSums sums, float* dx, std::int64_t columns) {
  const float reciprocal = 1.0f / static_cast<float>(columns);
  const float mean_gradient = sums.gradient * reciprocal, mean_product = sums.gradient_times_normal * reciprocal;
#pragma omp simd
  for (std::int64_t i = 0; i < columns; ++i) {
    const float normal = (x[i] - mean) * rstd;
    const float gradient = rstd * (dy[i] * gamma[i] - mean_gradient - normal * mean_product);
    dx[i] = with_residual ? residual_gradient[i] + gradient : gradient;
  }
}

}  // namespace

void CpuOps::layer_norm_forward(const LayerNormForwardArgs& args) {
  const RowsOf size(args.x);
  const std::int64_t columns = size.columns;
  const float* x = f32_elements("layer_norm_forward", args.x, size.elements());
  const float* gamma = f32_elements("layer_norm_forward", args.gamma, columns);
  const float* beta = f32_elements("layer_norm_forward", args.beta, columns);
  float* y = f32_elements("layer_norm_forward", args.y, size.elements());
  float* means = f32_elements("layer_norm_forward", args.mean, size.rows);
  float* rstds = f32_elements("layer_norm_forward", args.rstd, size.rows);
  const float reciprocal = 1.0f / static_cast<float>(columns);
  const auto normalize = [&](std::int64_t row) {
    const float* in = x + row * columns;
    float* out = y + row * columns;
    // The variance from deviations, not from E[x²] - E[x]²: a common offset of a row must not cost digits. The first
    // mean's own rounding is put right by the mean of the deviations from it.
    float sum = 0;
#pragma omp simd reduction(+ : sum)
    for (std::int64_t i = 0; i < columns; ++i) sum += in[i];
    const float first_mean = sum * reciprocal;
    float deviation_sum = 0, square_sum = 0;
#pragma omp simd reduction(+ : deviation_sum, square_sum)
    for (std::int64_t i = 0; i < columns; ++i) {
      const float deviation = in[i] - first_mean;
      deviation_sum += deviation;
      square_sum += deviation * deviation;
    }
    const float correction = deviation_sum * reciprocal;
    const float variance = std::max(square_sum * reciprocal - correction * correction, 0.0f);
    const float mean = first_mean + correction, rstd = 1.0f / std::sqrt(variance + args.epsilon);
#pragma omp simd
    for (std::int64_t i = 0; i < columns; ++i) out[i] = (in[i] - mean) * rstd * gamma[i] + beta[i];
    means[row] = mean;
    rstds[row] = rstd;
  };
  team_.rows(size.rows, columns, [&](std::int64_t first, std::int64_t last) {
    for (std::int64_t row = first; row < last; ++row) normalize(row);
  });
}

void CpuOps::layer_norm_backward(const LayerNormBackwardArgs& args) {
  const RowsOf size(args.x);
  const std::int64_t columns = size.columns;
  const float* dy = f32_elements("layer_norm_backward", args.dy, size.elements());
  const float* x = f32_elements("layer_norm_backward", args.x, size.elements());
  const float* gamma = f32_elements("layer_norm_backward", args.gamma, columns);
  const float* means = f32_elements("layer_norm_backward", args.mean, size.rows);
  const float* rstds = f32_elements("layer_norm_backward", args.rstd, size.rows);
  const float* residual = optional_f32_elements("layer_norm_backward", args.residual_gradient, size.elements());
  float* dx = f32_elements("layer_norm_backward", args.dx, size.elements());
  float* dgamma = f32_elements("layer_norm_backward", args.dgamma, columns);
  float* dbeta = f32_elements("layer_norm_backward", args.dbeta, columns);
  const auto input_gradient = residual ? input_gradient_row<true> : input_gradient_row<false>;
  const auto differentiate = [&](std::int64_t row, auto accumulate) {
    const std::int64_t at = row * columns;
    const float mean = means[row], rstd = rstds[row];
    const BackwardSums sums = accumulate(dy + at, x + at, gamma, mean, rstd, dgamma, dbeta, columns);
    input_gradient(dy + at, x + at, gamma, residual ? residual + at : nullptr, mean, rstd, sums, dx + at, columns);
  };
  if (!team_.worth(size.elements())) {
    for (std::int64_t row = 0; row < size.rows; ++row) differentiate(row, accumulate_row<true, true>);
    return;
  }
  // The parameters' gradients first: dx may lie on dy.
  team_.columns(size.rows, columns, [&](std::int64_t first, std::int64_t last) {
    for (std::int64_t row = 0; row < size.rows; ++row) {
      const std::int64_t at = row * columns + first;
      accumulate_row<false, true>(dy + at, x + at, gamma + first, means[row], rstds[row], dgamma + first, dbeta + first,
                                  last - first);
    }
  });
  team_.rows(size.rows, columns, [&](std::int64_t first, std::int64_t last) {
    for (std::int64_t row = first; row < last; ++row) differentiate(row, accumulate_row<true, false>);
  });
}

}  // namespace megatron

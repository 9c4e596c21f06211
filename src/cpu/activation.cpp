// GELU in its tanh form, written with the logistic function: 0.5 z (1 + tanh u) = z · logistic(2u). One exponential
// and one division, and no cancellation where tanh is close to -1.
#include "cpu/arguments.h"
#include "cpu/cpu_ops.h"
#include "cpu/vector_math.h"

namespace megatron {

namespace {

constexpr float kLinear = 1.59576912f;             // 2 sqrt(2/pi)
constexpr float kCubic = 1.59576912f * 0.044715f;  // so that 2u = z (kLinear + kCubic z²)

inline float gelu(float z) {
  return z * vector_logistic(z * (kLinear + kCubic * z * z));
}

inline float gelu_derivative(float z) {
  const float square = z * z, exponent = -z * (kLinear + kCubic * square);
  // 1 - s as e · s: subtracting would leave an error that z³ makes large. Past 80 either way, s or 1 - s is 0 in
  // effect.
  const float e = vector_exp_within_80(exponent);
  const float s = 1.0f / (1.0f + e);
  return s + s * (e * s) * z * (kLinear + 3.0f * kCubic * square);
}

template <bool with_bias>
void forward_row(const float* x, const float* bias, float* y, std::int64_t columns) {
#pragma omp simd
  for (std::int64_t i = 0; i < columns; ++i) y[i] = gelu(with_bias ? x[i] + bias[i] : x[i]);
}

template <bool with_bias, bool with_dbias>
void backward_row(const float* dy, const float* x, const float* bias, float* dx, float* dbias, std::int64_t columns) {
#pragma omp simd
  for (std::int64_t i = 0; i < columns; ++i) {
    const float gradient = dy[i] * gelu_derivative(with_bias ? x[i] + bias[i] : x[i]);
    dx[i] = gradient;
    if constexpr (with_dbias) dbias[i] += gradient;
  }
}

}  // namespace

void CpuOps::bias_gelu_forward(const BiasGeluForwardArgs& args) {
  const RowsOf size(args.x);
  const float* x = f32_elements("bias_gelu_forward", args.x, size.elements());
  const float* bias = optional_f32_elements("bias_gelu_forward", args.bias, size.columns);
  float* y = f32_elements("bias_gelu_forward", args.y, size.elements());
  const auto row_function = bias ? forward_row<true> : forward_row<false>;
  team_.rows(size.rows, size.columns, [&](std::int64_t first, std::int64_t last) {
    for (std::int64_t row = first; row < last; ++row) {
      row_function(x + row * size.columns, bias, y + row * size.columns, size.columns);
    }
  });
}

void CpuOps::bias_gelu_backward(const BiasGeluBackwardArgs& args) {
  const RowsOf size(args.x);
  const std::int64_t columns = size.columns;
  const float* dy = f32_elements("bias_gelu_backward", args.dy, size.elements());
  const float* x = f32_elements("bias_gelu_backward", args.x, size.elements());
  const float* bias = optional_f32_elements("bias_gelu_backward", args.bias, columns);
  float* dx = f32_elements("bias_gelu_backward", args.dx, size.elements());
  float* dbias = optional_f32_elements("bias_gelu_backward", args.dbias, columns);
  const auto row_function = bias ? (dbias ? backward_row<true, true> : backward_row<true, false>)
                                 : (dbias ? backward_row<false, true> : backward_row<false, false>);
  team_.columns(size.rows, columns, [&](std::int64_t first, std::int64_t last) {
    for (std::int64_t at = first; at < size.elements(); at += columns) {
      row_function(dy + at, x + at, bias ? bias + first : nullptr, dx + at, dbias ? dbias + first : nullptr,
                   last - first);
    }
  });
}

}  // namespace megatron

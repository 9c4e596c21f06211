// GELU in its tanh form, written with the logistic function: 0.5 z (1 + tanh u) = z · logistic(2u). One exponential
// and one division, and no cancellation where tanh is close to -1.
#include "cpu/cpu_ops.h"
#include "cpu/vector_math.h"
#include "ops/arguments.h"

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

template <class T, bool with_bias>
void forward_row(const T* x, const T* bias, T* y, std::int64_t columns) {
#pragma omp simd
  for (std::int64_t i = 0; i < columns; ++i) {
    y[i] = narrow<T>(gelu(with_bias ? wide(x[i]) + wide(bias[i]) : wide(x[i])));
  }
}

template <class T, bool with_bias, bool with_dbias>
void backward_row(const T* dy, const T* x, const T* bias, T* dx, float* dbias, std::int64_t columns) {
#pragma omp simd
  for (std::int64_t i = 0; i < columns; ++i) {
    const float gradient = wide(dy[i]) * gelu_derivative(with_bias ? wide(x[i]) + wide(bias[i]) : wide(x[i]));
    dx[i] = narrow<T>(gradient);
    if constexpr (with_dbias) dbias[i] += gradient;
  }
}

template <class T>
void forward(const Team& team, const BiasGeluForwardArgs& args) {
  const RowsOf size(args.x);
  const T* x = elements_of<T>("bias_gelu_forward", args.x, size.elements());
  const T* bias = optional_elements_of<T>("bias_gelu_forward", args.bias, size.columns);
  T* y = elements_of<T>("bias_gelu_forward", args.y, size.elements());
  const auto row_function = bias ? forward_row<T, true> : forward_row<T, false>;
  team.rows(size.rows, size.columns, [&](std::int64_t first, std::int64_t last) {
    for (std::int64_t row = first; row < last; ++row) {
      row_function(x + row * size.columns, bias, y + row * size.columns, size.columns);
    }
  });
}

template <class T>
void backward(const Team& team, const BiasGeluBackwardArgs& args) {
  const RowsOf size(args.x);
  const std::int64_t columns = size.columns;
  const T* dy = elements_of<T>("bias_gelu_backward", args.dy, size.elements());
  const T* x = elements_of<T>("bias_gelu_backward", args.x, size.elements());
  const T* bias = optional_elements_of<T>("bias_gelu_backward", args.bias, columns);
  T* dx = elements_of<T>("bias_gelu_backward", args.dx, size.elements());
  float* dbias = optional_elements_of<float>("bias_gelu_backward", args.dbias, columns);
  const auto row_function = bias ? (dbias ? backward_row<T, true, true> : backward_row<T, true, false>)
                                 : (dbias ? backward_row<T, false, true> : backward_row<T, false, false>);
  team.columns(size.rows, columns, [&](std::int64_t first, std::int64_t last) {
    for (std::int64_t at = first; at < size.elements(); at += columns) {
      row_function(dy + at, x + at, bias ? bias + first : nullptr, dx + at, dbias ? dbias + first : nullptr,
                   last - first);
    }
  });
}

}  // namespace

void CpuOps::bias_gelu_forward(const BiasGeluForwardArgs& args) {
  with_activation_type("bias_gelu_forward", args.x.dtype(), [&]<class T>(T) { forward<T>(team_, args); });
}

void CpuOps::bias_gelu_backward(const BiasGeluBackwardArgs& args) {
  with_activation_type("bias_gelu_backward", args.x.dtype(), [&]<class T>(T) { backward<T>(team_, args); });
}

}  // namespace megatron

// Activations, each in one pass with the bias in front of it. How its derivative is made decides an activation's form
// here: from what its value has computed already, without cancellation.
#include "backend/cpu/cpu_ops.h"
#include "backend/cpu/vector_math.h"
#include "backend/ops/arguments.h"

namespace megatron {

namespace {

struct Activated {
  float value, derivative;
};

/// z · logistic(u), and its derivative, from -u and du/dz · z. 1 - s as e · s: subtracting would leave an error that z
/// makes large. Past 80 either way, s or 1 - s is 0 in effect.
inline Activated logistic_gate(float z, float minus_u, float slope_of_u_times_z) {
  const float e = vector_exp_within_80(minus_u);
  const float s = 1.0f / (1.0f + e);
  return {z * s, s + s * (e * s) * slope_of_u_times_z};
}

/// GELU in its tanh form, written with the logistic function: 0.5 z (1 + tanh u) = z · logistic(2u). One exponential
/// and one division, and no cancellation where tanh is close to -1.
struct TanhGelu {
  static constexpr float kLinear = 1.59576912f;             // 2 sqrt(2/pi)
  static constexpr float kCubic = 1.59576912f * 0.044715f;  // so that 2u = z (kLinear + kCubic z²)

  static float value(float z) { return z * vector_logistic(z * (kLinear + kCubic * z * z)); }
  static Activated with_derivative(float z) {
    const float square = z * z;
    return logistic_gate(z, -z * (kLinear + kCubic * square), z * (kLinear + 3.0f * kCubic * square));
  }
};

struct ExactGelu {
  static constexpr float kDensity = 0.398942280f;  // 1 / sqrt(2π)

  static float value(float z) { return z * vector_normal(z).cumulative; }
  static Activated with_derivative(float z) {
    const Normal normal = vector_normal(z);
    return {z * normal.cumulative, normal.cumulative + z * (kDensity * normal.exponential)};
  }
};

struct Relu {  // NaN passes through
  static float value(float z) { return z <= 0.0f ? 0.0f : z; }
  static Activated with_derivative(float z) { return {value(z), z <= 0.0f ? 0.0f : 1.0f}; }
};

/// From e = e^(-2|z|); near 0, where 1 - e would lose digits, by the series up to z⁹.
struct Tanh {
  static float value_of(float z, float e) {
    const float square = z * z;
    const float series =
        z * (1.0f + square * (-1 / 3.0f + square * (2 / 15.0f + square * (-17 / 315.0f + square * (62 / 2835.0f)))));
    return std::abs(z) < 0.25f ? series : std::copysign((1.0f - e) / (1.0f + e), z);
  }
  static float value(float z) { return value_of(z, vector_exp_within_80(-2.0f * std::abs(z))); }
  static Activated with_derivative(float z) {
    const float e = vector_exp_within_80(-2.0f * std::abs(z));
    return {value_of(z, e), 4.0f * e / ((1.0f + e) * (1.0f + e))};
  }
};

struct Silu {
  static float value(float z) { return z * vector_logistic(z); }
  static Activated with_derivative(float z) { return logistic_gate(z, -z, z); }
};

/// Calls body(Function(), bool_constant<gated>()).
template <class Body>
void with_function(Activation activation, const Body& body) {
  switch (activation) {
    case Activation::gelu: return body(TanhGelu(), std::false_type());
    case Activation::gelu_exact: return body(ExactGelu(), std::false_type());
    case Activation::relu: return body(Relu(), std::false_type());
    case Activation::swiglu: return body(Silu(), std::true_type());
    case Activation::geglu: return body(TanhGelu(), std::true_type());
    case Activation::tanh: return body(Tanh(), std::false_type());
  }
}

/// Columns of a row: those of x and bias that are activated, and of gated ones those that are let through.
template <class Element>
struct Halves {
  Element *gate, *up;
};

template <class Element>
Halves<Element> halves_at(Element* row, std::int64_t column, std::int64_t width) {
  return row == nullptr ? Halves<Element>{} : Halves<Element>{row + column, row + width + column};
}

/// Flattened, as the backward one: with this many, GCC leaves calls in the loops, which then do not vectorise.
template <class Function, bool gated, class T, bool with_bias>
[[gnu::flatten]] void forward_row(Halves<const T> x, Halves<const T> bias, T* y, std::int64_t columns) {
#pragma omp simd
  for (std::int64_t i = 0; i < columns; ++i) {
    float result = Function::value(with_bias ? wide(x.gate[i]) + wide(bias.gate[i]) : wide(x.gate[i]));
    if constexpr (gated) result *= with_bias ? wide(x.up[i]) + wide(bias.up[i]) : wide(x.up[i]);
    y[i] = narrow<T>(result);
  }
}

template <class Function, bool gated, class T, bool with_bias, bool with_dbias>
[[gnu::flatten]] void backward_row(const T* dy, Halves<const T> x, Halves<const T> bias, Halves<T> dx,
                                   Halves<float> dbias, std::int64_t columns) {
#pragma omp simd
  for (std::int64_t i = 0; i < columns; ++i) {
    const Activated gate =
        Function::with_derivative(with_bias ? wide(x.gate[i]) + wide(bias.gate[i]) : wide(x.gate[i]));
    float gradient = wide(dy[i]);
    if constexpr (gated) {
      const float through = with_bias ? wide(x.up[i]) + wide(bias.up[i]) : wide(x.up[i]);
      const float up_gradient = gradient * gate.value;
      gradient *= through;
      dx.up[i] = narrow<T>(up_gradient);
      if constexpr (with_dbias) dbias.up[i] += up_gradient;
    }
    gradient *= gate.derivative;
    dx.gate[i] = narrow<T>(gradient);
    if constexpr (with_dbias) dbias.gate[i] += gradient;
  }
}

/// y's rows and columns; x and bias have twice the columns if gated.
struct Sizes {
  std::int64_t rows, columns, x_columns;
  Sizes(const ConstTensor& y, bool gated)
      : rows(RowsOf(y).rows), columns(RowsOf(y).columns), x_columns(gated ? 2 * columns : columns) {}
};

template <class T, class Function, bool gated>
void forward(const ThreadTeam& team, const BiasActivationForwardArgs& args) {
  const Sizes size(args.y, gated);
  const T* x = elements_of<T>("bias_activation_forward", args.x, size.rows * size.x_columns);
  const T* bias = optional_elements_of<T>("bias_activation_forward", args.bias, size.x_columns);
  T* y = elements_of<T>("bias_activation_forward", args.y, size.rows * size.columns);
  const auto row_function = bias ? forward_row<Function, gated, T, true> : forward_row<Function, gated, T, false>;
  const Halves<const T> biases = halves_at(bias, 0, size.columns);
  team.rows(size.rows, size.x_columns, [&](std::int64_t first, std::int64_t last) {
    for (std::int64_t row = first; row < last; ++row) {
      row_function(halves_at(x + row * size.x_columns, 0, size.columns), biases, y + row * size.columns, size.columns);
    }
  });
}

template <class T, class Function, bool gated>
void backward(const ThreadTeam& team, const BiasActivationBackwardArgs& args) {
  const Sizes size(args.dy, gated);
  const std::int64_t columns = size.columns;
  const T* dy = elements_of<T>("bias_activation_backward", args.dy, size.rows * columns);
  const T* x = elements_of<T>("bias_activation_backward", args.x, size.rows * size.x_columns);
  const T* bias = optional_elements_of<T>("bias_activation_backward", args.bias, size.x_columns);
  T* dx = elements_of<T>("bias_activation_backward", args.dx, size.rows * size.x_columns);
  float* dbias = optional_elements_of<float>("bias_activation_backward", args.dbias, size.x_columns);
  const auto row_function =
      bias ? (dbias ? backward_row<Function, gated, T, true, true> : backward_row<Function, gated, T, true, false>)
           : (dbias ? backward_row<Function, gated, T, false, true> : backward_row<Function, gated, T, false, false>);
  team.columns(size.rows, columns, [&](std::int64_t first, std::int64_t last) {
    const Halves<const T> biases = halves_at(bias, first, columns);
    const Halves<float> bias_gradients = halves_at(dbias, first, columns);
    for (std::int64_t row = 0; row < size.rows; ++row) {
      row_function(dy + row * columns + first, halves_at(x + row * size.x_columns, first, columns), biases,
                   halves_at(dx + row * size.x_columns, first, columns), bias_gradients, last - first);
    }
  });
}

}  // namespace

void CpuOps::bias_activation_forward(const BiasActivationForwardArgs& args) {
  with_activation_type("bias_activation_forward", args.x.dtype(), [&]<class T>(T) {
    with_function(args.activation, [&]<class Function, bool gated>(Function, std::bool_constant<gated>) {
      forward<T, Function, gated>(team_, args);
    });
  });
}

void CpuOps::bias_activation_backward(const BiasActivationBackwardArgs& args) {
  with_activation_type("bias_activation_backward", args.x.dtype(), [&]<class T>(T) {
    with_function(args.activation, [&]<class Function, bool gated>(Function, std::bool_constant<gated>) {
      backward<T, Function, gated>(team_, args);
    });
  });
}

}  // namespace megatron

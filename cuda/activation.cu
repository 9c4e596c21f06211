// Activations, each in one pass with the bias in front of it: one exponential and one reciprocal an element.
#include "backend/ops/arguments.h"
#include "backend/ops/normal_tail.h"
#include "cuda/column_tile.cuh"
#include "cuda/cuda_ops.h"
#include "cuda/sums.cuh"

namespace megatron {

namespace {

constexpr float kLog2E = 1.44269504f;

struct Activated {
  float value, derivative;
};

/// z · logistic(u), from the exponent of 2 that makes e^-u.
__device__ __forceinline__ float logistic_gate(float z, float exponent_of_minus_u) {
  return __fdividef(z, 1.0f + ptx::exp2_approximately(exponent_of_minus_u));
}
/// And its derivative, from z · du/dz. 1 - s as e · s: subtracting would leave an error that z makes large. Past 2^115,
/// s is 0 in effect.
__device__ __forceinline__ Activated logistic_gate(float z, float exponent_of_minus_u, float z_times_slope) {
  const float e = ptx::exp2_approximately(fminf(exponent_of_minus_u, 115.0f));
  const float s = __fdividef(1.0f, 1.0f + e);
  return {z * s, s + s * (e * s) * z_times_slope};
}

/// GELU in its tanh form, written with the logistic function: 0.5 z (1 + tanh u) = z · logistic(2u). No cancellation
/// where tanh is close to -1.
struct TanhGelu {
  static constexpr float kLinear = 1.59576912f;             // 2 sqrt(2/pi)
  static constexpr float kCubic = 1.59576912f * 0.044715f;  // so that 2u = z (kLinear + kCubic z²)

  __device__ static float exponent(float z) { return -z * (kLinear * kLog2E + kCubic * kLog2E * z * z); }
  __device__ static float value(float z) { return logistic_gate(z, exponent(z)); }
  __device__ static Activated with_derivative(float z) {
    return logistic_gate(z, exponent(z), z * (kLinear + 3.0f * kCubic * z * z));
  }
};

struct ExactGelu {
  static constexpr float kDensity = 0.398942280f;  // 1 / sqrt(2π)

  __device__ static Activated with_derivative(float z) {
    const float exponential = ptx::exp2_approximately(-0.5f * kLog2E * z * z);
    const float tail = scaled_normal_tail(__fdividef(1.0f, 1.0f + kNormalTailScale * fabsf(z))) * exponential;
    const float cumulative = z > 0.0f ? 1.0f - tail : tail;
    return {z * cumulative, cumulative + z * (kDensity * exponential)};
  }
  __device__ static float value(float z) { return with_derivative(z).value; }
};

struct Relu {  // NaN passes through
  __device__ static float value(float z) { return z <= 0.0f ? 0.0f : z; }
  __device__ static Activated with_derivative(float z) { return {value(z), z <= 0.0f ? 0.0f : 1.0f}; }
};

struct Tanh {
  __device__ static float value(float z) { return tanhf(z); }
  __device__ static Activated with_derivative(float z) {
    const float e = ptx::exp2_approximately(-2.0f * kLog2E * fabsf(z));
    return {tanhf(z), __fdividef(4.0f * e, (1.0f + e) * (1.0f + e))};
  }
};

struct Silu {
  __device__ static float value(float z) { return logistic_gate(z, -kLog2E * z); }
  __device__ static Activated with_derivative(float z) { return logistic_gate(z, -kLog2E * z, z); }
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

/// Neighbouring elements of x's row: of what is activated, and of gated ones of what is let through.
template <class T, int width>
struct Halves {
  Vector<T, width> gate, up;
};

/// The same columns of x as those of y that begin at `at`, `column` of their row; y has `columns`.
template <int width, bool gated, class T>
__device__ __forceinline__ Halves<T, width> load_halves(const T* x, std::int64_t at, std::int64_t column,
                                                        std::int64_t columns) {
  if constexpr (gated) {
    const T* gate = x + 2 * at - column;
    return {load_vector<width>(gate), load_vector<width>(gate + columns)};
  } else {
    return {load_vector<width>(x + at), {}};
  }
}

/// As floats, with the biases added.
template <bool gated, class T, int width>
__device__ __forceinline__ Halves<float, width> biased(const Halves<T, width>& x, const Halves<float, width>& bias) {
  Halves<float, width> z{to_floats(x.gate), to_floats(x.up)};
  for (int i = 0; i < width; ++i) {
    z.gate.values[i] += bias.gate.values[i];
    if constexpr (gated) z.up.values[i] += bias.up.values[i];
  }
  return z;
}

template <int width, bool gated, class T>
__device__ __forceinline__ Halves<float, width> load_biases(const T* bias, std::int64_t column, std::int64_t columns) {
  if (bias == nullptr) return {};
  const auto loaded = load_halves<width, gated>(bias, column, column, columns);
  return {to_floats(loaded.gate), to_floats(loaded.up)};
}

template <class Function, bool gated, class T, int width>
__global__ void __launch_bounds__(kTileThreads)
    forward_kernel(const T* x, const T* bias, T* y, std::int64_t rows, std::int64_t columns) {
  const ColumnTile<width> tile(rows, columns);
  if (!tile.inside()) return;
  const auto biases = load_biases<width, gated>(bias, tile.column, columns);
  tile.template for_each_row<gated ? 2 : 4>(
      [&](std::int64_t at, std::int64_t) { return load_halves<width, gated>(x, at, tile.column, columns); },
      [&](std::int64_t at, std::int64_t, const Halves<T, width>& loaded) {
        auto z = biased<gated>(loaded, biases);
        for (int i = 0; i < width; ++i) {
          z.gate.values[i] = Function::value(z.gate.values[i]);
          if constexpr (gated) z.gate.values[i] *= z.up.values[i];
        }
        store_floats(y + at, z.gate);
      });
}

/// Inputs from which the gradients of one element of `width` columns are made.
template <class T, int width>
struct BackwardInputs {
  Vector<T, width> dy;
  Halves<T, width> x;
};

/// partial: [gridDim.y, columns of x] sums of dx as f32, or null.
template <class Function, bool gated, class T, int width>
__global__ void __launch_bounds__(kTileThreads)
    backward_kernel(const T* dy, const T* x, const T* bias, T* dx, float* partial, std::int64_t rows,
                    std::int64_t columns) {
  const ColumnTile<width> tile(rows, columns);
  Halves<float, width> sums{};
  if (tile.inside()) {
    const auto biases = load_biases<width, gated>(bias, tile.column, columns);
    using Inputs = BackwardInputs<T, width>;
    tile.template for_each_row<2>(
        [&](std::int64_t at, std::int64_t) {
          return Inputs{load_vector<width>(dy + at), load_halves<width, gated>(x, at, tile.column, columns)};
        },
        [&](std::int64_t at, std::int64_t, const Inputs& loaded) {
          auto gradient = to_floats(loaded.dy);
          auto z = biased<gated>(loaded.x, biases);
          for (int i = 0; i < width; ++i) {
            const Activated gate = Function::with_derivative(z.gate.values[i]);
            if constexpr (gated) {
              const float through = z.up.values[i];
              z.up.values[i] = gradient.values[i] * gate.value;
              sums.up.values[i] += z.up.values[i];
              gradient.values[i] *= through;
            }
            gradient.values[i] *= gate.derivative;
            sums.gate.values[i] += gradient.values[i];
          }
          if constexpr (gated) {
            T* gate = dx + 2 * at - tile.column;
            store_floats(gate, gradient);
            store_floats(gate + columns, z.up);
          } else {
            store_floats(dx + at, gradient);
          }
        });
  }
  if (partial == nullptr) return;
  float* slice = partial + blockIdx.y * (gated ? 2 : 1) * columns;
  tile.store_sums(sums.gate, slice);
  if constexpr (gated) tile.store_sums(sums.up, slice + columns);
}

}  // namespace

void CudaOps::bias_activation_forward(const BiasActivationForwardArgs& args) {
  const auto run = [&]<class T, class Function, bool gated>(T, Function, std::bool_constant<gated>) {
    const RowsOf size(args.y);
    const std::int64_t x_columns = gated ? 2 * size.columns : size.columns;
    const T* x = elements_of<T>("bias_activation_forward", args.x, size.rows * x_columns);
    const T* bias = optional_elements_of<T>("bias_activation_forward", args.bias, x_columns);
    T* y = elements_of<T>("bias_activation_forward", args.y, size.elements());
    if (size.elements() == 0) return;
    const bool vectors = vectorizable<T>(size.columns, x, bias, y);
    const auto kernel =
        vectors ? forward_kernel<Function, gated, T, Vector<T>::size> : forward_kernel<Function, gated, T, 1>;
    const LaunchShape shape =
        column_tile_shape(size.rows, size.columns, vectors ? Vector<T>::size : 1, device_.multiprocessors(), 1);
    launch(stream_, shape, kernel, x, bias, y, size.rows, size.columns);
  };
  with_activation_type("bias_activation_forward", args.x.dtype(), [&](auto type) {
    with_function(args.activation, [&](auto function, auto gated) { run(type, function, gated); });
  });
}

void CudaOps::bias_activation_backward(const BiasActivationBackwardArgs& args) {
  const auto run = [&]<class T, class Function, bool gated>(T, Function, std::bool_constant<gated>) {
    const RowsOf size(args.dy);
    const std::int64_t columns = size.columns, x_columns = gated ? 2 * columns : columns;
    const T* dy = elements_of<T>("bias_activation_backward", args.dy, size.elements());
    const T* x = elements_of<T>("bias_activation_backward", args.x, size.rows * x_columns);
    const T* bias = optional_elements_of<T>("bias_activation_backward", args.bias, x_columns);
    T* dx = elements_of<T>("bias_activation_backward", args.dx, size.rows * x_columns);
    float* dbias = optional_elements_of<float>("bias_activation_backward", args.dbias, x_columns);
    if (size.elements() == 0) return;
    const bool vectors = vectorizable<T>(columns, dy, x, bias, dx);
    const auto kernel =
        vectors ? backward_kernel<Function, gated, T, Vector<T>::size> : backward_kernel<Function, gated, T, 1>;
    const LaunchShape shape = column_tile_shape(size.rows, columns, vectors ? Vector<T>::size : 1,
                                                device_.multiprocessors(), dbias == nullptr ? 1 : 8);
    float* partial = dbias == nullptr ? nullptr : float_scratch(shape.grid.y * x_columns);
    launch(stream_, shape, kernel, dy, x, bias, dx, partial, size.rows, columns);
    if (dbias != nullptr) add_slices(stream_, partial, shape.grid.y, x_columns, dbias);
  };
  with_activation_type("bias_activation_backward", args.x.dtype(), [&](auto type) {
    with_function(args.activation, [&](auto function, auto gated) { run(type, function, gated); });
  });
}

}  // namespace megatron

// Matrix products of the emulated device: by the definition, f32 accumulation. Epilogues are there for an even number
// of rows alone: the verbs must do without one.
#include "cuda/matmul_library.h"

#include <array>
#include <cmath>

#include "backend/ops/arguments.h"
#include "backend/ops/product_size.h"
#include "base/core/half.h"
#include "epilogues.h"

namespace megatron {

struct MatmulLibrary::State {};

MatmulLibrary::MatmulLibrary(CudaDevice&) {}
MatmulLibrary::~MatmulLibrary() = default;

namespace {

int& count_of(Epilogue::Kind kind) {
  thread_local std::array<int, 4> counts{};
  return counts.at(static_cast<std::size_t>(kind));
}

float gelu_tanh(float z) {
  return std::tanh(0.7978845608f * (z + 0.044715f * z * z * z));
}
float gelu_derivative(float z) {
  const float t = gelu_tanh(z);
  return 0.5f * (1 + t) + 0.5f * z * (1 - t * t) * 0.7978845608f * (1 + 0.134145f * z * z);
}

/// Value that is stored at (row i, column j) of n columns in place of a product's sum.
template <class Result>
float finish(const Epilogue& epilogue, float sum, std::int64_t i, std::int64_t j, std::int64_t n) {
  if (epilogue.bias != nullptr) sum += wide(static_cast<const Result*>(epilogue.bias)[j]);
  if (epilogue.kind == Epilogue::Kind::gelu) {
    static_cast<Result*>(epilogue.gelu_input)[i * n + j] = narrow<Result>(sum);
    return 0.5f * sum * (1 + gelu_tanh(sum));
  }
  if (epilogue.kind == Epilogue::Kind::gelu_gradient) {
    return sum * gelu_derivative(wide(static_cast<const Result*>(epilogue.gelu_input)[i * n + j]));
  }
  return sum;
}

template <class T, class Result>
void multiply_as(const MatmulArgs& args, const Epilogue& epilogue) {
  const auto [m, n, k] = product_size(args);
  const T *a = args.a.as<T>(), *b = args.b.as<T>();
  Result* c = args.c.as<Result>();
  for (std::int64_t i = 0; i < m; ++i) {
    for (std::int64_t j = 0; j < n; ++j) {
      float sum = 0;
      for (std::int64_t l = 0; l < k; ++l) {
        sum += wide(args.transpose_a ? a[l * args.a.stride(0) + i] : a[i * args.a.stride(0) + l]) *
               wide(args.transpose_b ? b[j * args.b.stride(0) + l] : b[l * args.b.stride(0) + j]);
      }
      Result& to = c[i * args.c.stride(0) + j];
      if (args.accumulate) sum += wide(to);
      to = narrow<Result>(finish<Result>(epilogue, sum, i, j, n));
    }
  }
}

}  // namespace

void MatmulLibrary::multiply(const MatmulArgs& args) {
  (void)multiply(args, Epilogue{});
}

bool MatmulLibrary::multiply(const MatmulArgs& args, const Epilogue& epilogue) {
  if (epilogue.kind != Epilogue::Kind::none && product_size(args).m % 2 != 0) return false;
  with_activation_type("matmul", args.a.dtype(), [&]<class T>(T) {
    if (args.c.dtype() == DType::f32) {
      multiply_as<T, float>(args, epilogue);
    } else {
      multiply_as<T, T>(args, epilogue);
    }
  });
  ++count_of(epilogue.kind);
  return true;
}

}  // namespace megatron

int emulated_cuda::products_with(megatron::Epilogue::Kind kind) {
  return megatron::count_of(kind);
}

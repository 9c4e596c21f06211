// Matrix products of the emulated device: by the definition, f32 accumulation.
#include "cuda/matmul_library.h"

#include "base/half.h"
#include "ops/arguments.h"
#include "ops/product_size.h"

namespace megatron {

struct MatmulLibrary::State {};

MatmulLibrary::MatmulLibrary(CudaDevice&) {}
MatmulLibrary::~MatmulLibrary() = default;

namespace {

template <class T, class Result>
void multiply_as(const MatmulArgs& args) {
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
      to = narrow<Result>(args.accumulate ? wide(to) + sum : sum);
    }
  }
}

}  // namespace

void MatmulLibrary::multiply(const MatmulArgs& args) {
  with_activation_type("matmul", args.a.dtype(), [&]<class T>(T) {
    if (args.c.dtype() == DType::f32) {
      multiply_as<T, float>(args);
    } else {
      multiply_as<T, T>(args);
    }
  });
}

}  // namespace megatron

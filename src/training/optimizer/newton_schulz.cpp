#include "training/optimizer/newton_schulz.h"

#include <algorithm>
#include <utility>

namespace megatron {

namespace {

/// gram and sum: [s, s], worked in, with s the smaller extent of x.
void step(Ops& ops, Tensor gram, Tensor sum, ConstTensor x, Tensor y) {
  const bool tall = x.dim(0) > x.dim(1);
  ops.matmul({.a = x, .b = x, .transpose_a = tall, .transpose_b = !tall, .c = gram});
  // sum = c (b/c A + A²)
  ops.copy(gram, sum);
  ops.scale(sum, kNewtonSchulzB / kNewtonSchulzC);
  ops.matmul({.a = gram, .b = gram, .c = sum, .accumulate = true});
  ops.scale(sum, kNewtonSchulzC);
  ops.copy(x, y);
  ops.scale(y, kNewtonSchulzA);
  ops.matmul({.a = tall ? x : sum, .b = tall ? sum : x, .c = y, .accumulate = true});
}

}  // namespace

void orthogonalize(Ops& ops, Arena& scratch, Tensor x, Tensor y) {
  const ArenaScope scope(scratch);
  const std::int64_t small = std::min(x.dim(0), x.dim(1));
  const Tensor gram = scratch.allocate("Newton-Schulz A", {small, small}, DType::f32);
  const Tensor sum = scratch.allocate("Newton-Schulz B", {small, small}, DType::f32);
  const Tensor square_sum = scratch.allocate("Newton-Schulz norm", {1}, DType::f64);
  ops.fill(square_sum, 0);
  ops.square_sum({.x = x, .total = square_sum});
  ops.divide_by_norm({.x = x, .square_sum = square_sum, .epsilon = kNewtonSchulzEpsilon});
  static_assert(kNewtonSchulzSteps % 2 == 1, "x and y change places at each step, and y is to have the last one's");
  for (int i = 0; i < kNewtonSchulzSteps; ++i) {
    step(ops, gram, sum, x, y);
    std::swap(x, y);
  }
}

double orthogonalize_flops(const Shape& shape) {
  const auto small = static_cast<double>(std::min(shape[0], shape[1]));
  const auto large = static_cast<double>(std::max(shape[0], shape[1]));
  return kNewtonSchulzSteps * (4 * small * small * large + 2 * small * small * small);
}

}  // namespace megatron

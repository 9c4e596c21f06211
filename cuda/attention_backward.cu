// Attention backward: the statistics of every query, and the choice of kernels for the gradients.
#include "cuda/attention_backward.cuh"

#include <utility>

#include "backend/ops/arguments.h"
#include "cuda/attention_distances.h"
#include "cuda/cuda_ops.h"
#include "cuda/distance_floats.h"
#include "cuda/sums.cuh"

namespace megatron {

using namespace cuda_attention;

namespace {

/// references = log_sum_exp in units of log2, infinity for rows that see nothing or do not exist, whose probabilities
/// become 0 by it; deltas = rowsum(dout ∘ out). Reads dout and out once. A team of lanes for each row, `width` elements
/// a lane at a time; blockIdx is (rows, head, sample), and rows are padded to whole blocks.
template <class T, int team, int width>
__global__ void __launch_bounds__(kBlockThreads)
    statistics_kernel(const Problem problem, const Heads<const T> dout, const Heads<const T> out,
                      const float* log_sum_exp, float* references, float* deltas, int padded_queries) {
  const int query = static_cast<int>((blockIdx.x * kBlockThreads + threadIdx.x) / team);
  const int lane = static_cast<int>(threadIdx.x % team);
  const int sample = static_cast<int>(blockIdx.z), head = static_cast<int>(blockIdx.y);
  const std::int64_t pair = static_cast<std::int64_t>(sample) * problem.heads + head;
  float delta = 0, reference = kInfinity;
  if (query < problem.masks.queries) {
    const T* x = dout.rows(sample, head).row(query);
    const T* y = out.rows(sample, head).row(query);
    for (int i = lane * width; i < problem.size; i += team * width) {
      const auto left = load_floats<width>(x + i), right = load_floats<width>(y + i);
      for (int j = 0; j < width; ++j) delta += left.values[j] * right.values[j];
    }
    const float natural = log_sum_exp[pair * problem.masks.queries + query];
    if (natural != -kInfinity) reference = natural * kLog2E;
  }
  for (int lanes = team / 2; lanes > 0; lanes /= 2) delta += __shfl_xor_sync(kFullWarp, delta, lanes);
  if (lane == 0) {
    references[pair * padded_queries + query] = reference;
    deltas[pair * padded_queries + query] = delta;
  }
}

template <class T>
using StatisticsKernel = void (*)(Problem, Heads<const T>, Heads<const T>, const float*, float*, float*, int);

/// The kernel with the smallest team that reads a row of vectors at once, or element by element; and its team.
template <class T>
std::pair<StatisticsKernel<T>, int> statistics_kernel_for(std::int64_t size, bool vectors) {
  constexpr int width = Vector<T>::size;
  if (!vectors) return {statistics_kernel<T, 32, 1>, 32};
  if (size <= 8 * width) return {statistics_kernel<T, 8, width>, 8};
  if (size <= 16 * width) return {statistics_kernel<T, 16, width>, 16};
  return {statistics_kernel<T, 32, width>, 32};
}

}  // namespace

void CudaOps::attention_backward(const AttentionBackwardArgs& args) {
  const AttentionShape shape("attention_backward", args.q, args.k, args.v, args.mask, args.dropout);
  for (const ConstTensor& x : {args.dout, args.out, static_cast<const ConstTensor&>(args.dq)}) shape.check_queries(x);
  for (const ConstTensor& x : {args.dk, args.dv}) shape.check_keys(x);
  shape.check_log_sum_exp(args.log_sum_exp);
  shape.check_distance_gradient(args.ddistance_bias, args.mask);
  with_activation_type("attention_backward", args.q.dtype(), [&]<class T>(T) {
    if (shape.samples * shape.key_heads * shape.heads * shape.head_size == 0) return;
    const std::int64_t padded = (shape.queries + kQueryPadding - 1) / kQueryPadding * kQueryPadding;
    const std::int64_t statistics = shape.samples * shape.heads * padded;
    const bool tiles = has_tiles<T>(shape.head_size, args.mask);
    const std::int64_t warps = args.ddistance_bias ? shape.samples * distance_rows(shape.queries, tiles) : 0;
    const std::int64_t of_distances = warps * args.ddistance_bias.elements();
    float* references = float_scratch(2 * statistics + of_distances + distance_floats(args.mask));
    float *deltas = references + statistics, *distance_sums = deltas + statistics;
    const Problem problem(shape, args.mask, args.dropout, args.scale,
                          place_distances(stream_, args.mask, distance_sums + of_distances));
    if (statistics > 0) {
      const auto [kernel, team] =
          statistics_kernel_for<T>(problem.size, rows_are_vectors<T>(args.dout) && rows_are_vectors<T>(args.out));
      static_assert(kQueryPadding % (kBlockThreads / 8) == 0, "rows are whole blocks with every team");
      launch(stream_,
             {.grid = grid_of(padded, kBlockThreads / team, shape.heads, shape.samples), .block = dim3(kBlockThreads)},
             kernel, problem, heads_of<T>(args.dout), heads_of<T>(args.out), args.log_sum_exp.as<float>(), references,
             deltas, static_cast<int>(padded));
    }
    BackwardParameters<T> parameters{problem,
                                     heads_of<T>(args.q),
                                     heads_of<T>(args.k),
                                     heads_of<T>(args.v),
                                     heads_of<T>(args.dout),
                                     heads_of<T>(args.dq),
                                     heads_of<T>(args.dk),
                                     heads_of<T>(args.dv),
                                     references,
                                     deltas,
                                     padded,
                                     of_distances > 0 ? distance_sums : nullptr,
                                     true};
    for (const ConstTensor& x : {args.q, args.k, args.v, args.dout, static_cast<const ConstTensor&>(args.dq),
                                 static_cast<const ConstTensor&>(args.dk), static_cast<const ConstTensor&>(args.dv)}) {
      parameters.vectors = parameters.vectors && rows_are_vectors<T>(x);
    }
    if constexpr (kHalf<T>) {
      if (tiles) {
        attention_backward_tiles(stream_, parameters, device_.shared_bytes_per_block());
      } else {
        attention_backward_exact(stream_, parameters);
      }
    } else {
      attention_backward_exact(stream_, parameters);
    }
    if (of_distances > 0) {
      add_slices(stream_, distance_sums, warps, args.ddistance_bias.elements(), args.ddistance_bias.as<float>());
    }
  });
}

}  // namespace megatron

// Attention backward: the statistics of every query, and the choice of kernels for the gradients.
#include "cuda/attention_backward.cuh"
#include "cuda/cuda_ops.h"
#include "ops/arguments.h"

namespace megatron {

using namespace cuda_attention;

namespace {

/// references = log_sum_exp in units of log2, infinity for rows that see nothing or do not exist, whose probabilities
/// become 0 by it; deltas = rowsum(dout ∘ out). A warp a row. Reads dout and out once.
template <class T>
__global__ void __launch_bounds__(kBlockThreads)
    statistics_kernel(const Problem problem, const Heads<const T> dout, const Heads<const T> out,
                      const float* log_sum_exp, float* references, float* deltas, std::int64_t padded_queries,
                      bool vectors) {
  const std::int64_t row = first_element() / kWarpThreads, heads = problem.heads, pairs = problem.samples * heads;
  const std::int64_t query = row / pairs, pair = row % pairs;
  if (query >= padded_queries) return;
  const int lane = static_cast<int>(threadIdx.x % kWarpThreads);
  float delta = 0, reference = kInfinity;
  if (query < problem.masks.queries) {
    const auto sample = static_cast<int>(pair / heads), head = static_cast<int>(pair % heads);
    const T* x = dout.rows(sample, head).row(static_cast<int>(query));
    const T* y = out.rows(sample, head).row(static_cast<int>(query));
    const int width = vectors ? Vector<T>::size : 1;
    for (int i = lane * width; i < problem.size; i += 32 * width) {
      if (vectors) {
        const Vector<T> left = load_vector(x + i), right = load_vector(y + i);
        for (int j = 0; j < Vector<T>::size; ++j) {
          delta += to_wide(left.values[j]) * to_wide(right.values[j]);
        }
      } else {
        delta += to_wide(x[i]) * to_wide(y[i]);
      }
    }
    delta = warp_sum(delta);
    const float natural = log_sum_exp[pair * problem.masks.queries + query];
    if (natural != -kInfinity) reference = natural * kLog2E;
  }
  if (lane == 0) {
    references[pair * padded_queries + query] = reference;
    deltas[pair * padded_queries + query] = delta;
  }
}

}  // namespace

void CudaOps::attention_backward(const AttentionBackwardArgs& args) {
  const AttentionShape shape("attention_backward", args.q, args.k, args.v, args.mask, args.dropout);
  for (const ConstTensor& x : {args.dout, args.out, static_cast<const ConstTensor&>(args.dq)}) shape.check_queries(x);
  for (const ConstTensor& x : {args.dk, args.dv}) shape.check_keys(x);
  shape.check_log_sum_exp(args.log_sum_exp);
  with_activation_type("attention_backward", args.q.dtype(), [&]<class T>(T) {
    if (shape.samples * shape.key_heads * shape.heads * shape.head_size == 0) return;
    const Problem problem(shape, args.mask, args.dropout, args.scale);
    const std::int64_t padded = (shape.queries + kQueryPadding - 1) / kQueryPadding * kQueryPadding;
    const std::int64_t statistics = shape.samples * shape.heads * padded;
    auto* references = reinterpret_cast<float*>(scratch(2 * sizeof(float) * static_cast<std::size_t>(statistics)));
    float* deltas = references + statistics;
    if (statistics > 0) {
      constexpr std::int64_t warps = kBlockThreads / kWarpThreads;
      launch(stream_,
             {.grid = dim3(static_cast<unsigned>((statistics + warps - 1) / warps)), .block = dim3(kBlockThreads)},
             statistics_kernel<T>, problem, heads_of<T>(args.dout), heads_of<T>(args.out), args.log_sum_exp.as<float>(),
             references, deltas, padded, rows_are_vectors<T>(args.dout) && rows_are_vectors<T>(args.out));
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
                                     true};
    for (const ConstTensor& x : {args.q, args.k, args.v, args.dout, static_cast<const ConstTensor&>(args.dq),
                                 static_cast<const ConstTensor&>(args.dk), static_cast<const ConstTensor&>(args.dv)}) {
      parameters.vectors = parameters.vectors && rows_are_vectors<T>(x);
    }
    if constexpr (kHalf<T>) {
      if (problem.size <= kMaximumTileSize) {
        return attention_backward_tiles(stream_, parameters, device_.shared_bytes_per_block());
      }
    }
    attention_backward_exact(stream_, parameters);
  });
}

}  // namespace megatron

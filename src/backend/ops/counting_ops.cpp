#include "backend/ops/counting_ops.h"

namespace megatron {

namespace {
/// The area under the first x queries of a causal mask of `keys`, its first query being the first key's.
double causal_area(std::int64_t x, std::int64_t keys) {
  const auto queries = static_cast<double>(std::max<std::int64_t>(x, 0)), most = static_cast<double>(keys);
  return queries <= most ? queries * queries / 2 : most * most / 2 + (queries - most) * most;
}

// One product of scores' size: 2 s_q s_k d per head and sample, as far as the mask leaves it.
double score_product(const ConstTensor& q, const ConstTensor& k, const AttentionMask& mask) {
  const std::int64_t queries = q.dim(0), keys = k.dim(0);
  if (queries == 0) return 0;
  const std::int64_t offset = mask.query_offsets ? std::max<std::int64_t>(keys - queries, 0) : 0;
  const double rows = static_cast<double>(q.elements()) / static_cast<double>(queries);  // b a d
  return 2.0 * rows * visible_pairs(queries, keys, offset, mask.causal, mask.window);
}
}  // namespace

double visible_pairs(std::int64_t queries, std::int64_t keys, std::int64_t offset, bool causal, std::int64_t window) {
  if (!causal && window <= 0) return static_cast<double>(queries) * static_cast<double>(keys);
  const double up_to_own = causal_area(offset + queries, keys) - causal_area(offset, keys);
  if (window <= 0) return up_to_own;
  return up_to_own - causal_area(offset + queries - window, keys) + causal_area(offset - window, keys);
}

double visible_share(std::int64_t keys, bool causal, std::int64_t window) {
  const auto square = static_cast<double>(keys) * static_cast<double>(keys);
  return keys == 0 ? 0 : visible_pairs(keys, keys, 0, causal, window) / square;
}

void CountingOps::matmul(const MatmulArgs& args) {
  const std::int64_t inner = args.a.dim(args.transpose_a ? 0 : 1);
  matmul_flops_ += 2.0 * static_cast<double>(args.c.elements()) * static_cast<double>(inner);
}

void CountingOps::layer_norm_forward(const LayerNormForwardArgs& args) {
  function_bytes_ += static_cast<double>(args.x.bytes() + args.y.bytes());
}

void CountingOps::bias_activation_forward(const BiasActivationForwardArgs& args) {
  function_bytes_ += static_cast<double>(args.x.bytes() + args.y.bytes());
}

void CountingOps::attention_forward(const AttentionForwardArgs& args) {
  attention_flops_ += 2 * score_product(args.q, args.k, args.mask);  // q·kᵀ, p·v
}

void CountingOps::attention_backward(const AttentionBackwardArgs& args) {
  attention_flops_ += 5 * score_product(args.q, args.k, args.mask);  // q·kᵀ again, dv, dp, dq, dk
}

}  // namespace megatron

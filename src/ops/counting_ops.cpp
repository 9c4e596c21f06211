#include "ops/counting_ops.h"

namespace megatron {

namespace {
// One product of scores' size: 2 s_q s_k d per head and sample, as far as the mask leaves it.
double score_product(const ConstTensor& q, const ConstTensor& k, const AttentionMask& mask) {
  const double square = 2.0 * static_cast<double>(q.elements()) * static_cast<double>(k.dim(0));
  return square * visible_share(k.dim(0), mask.causal, mask.window);
}
}  // namespace

double visible_share(std::int64_t keys, bool causal, std::int64_t window) {
  if (window <= 0 || window >= keys) return causal ? 0.5 : 1;
  const double share = static_cast<double>(window) / static_cast<double>(keys);
  return share - share * share / 2;
}

void CountingOps::matmul(const MatmulArgs& args) {
  const std::int64_t inner = args.a.dim(args.transpose_a ? 0 : 1);
  matmul_flops_ += 2.0 * static_cast<double>(args.c.elements()) * static_cast<double>(inner);
}

void CountingOps::attention_forward(const AttentionForwardArgs& args) {
  attention_flops_ += 2 * score_product(args.q, args.k, args.mask);  // q·kᵀ, p·v
}

void CountingOps::attention_backward(const AttentionBackwardArgs& args) {
  attention_flops_ += 5 * score_product(args.q, args.k, args.mask);  // q·kᵀ again, dv, dp, dq, dk
}

}  // namespace megatron

#include "ops/counting_ops.h"

namespace megatron {

namespace {
// One product of scores' size: 2 s_q s_k d per head and sample, half of it where the causal mask cuts.
double score_product(const ConstTensor& q, const ConstTensor& k, bool causal) {
  const double square = 2.0 * static_cast<double>(q.elements()) * static_cast<double>(k.dim(0));
  return causal ? square / 2 : square;
}
}  // namespace

void CountingOps::matmul(const MatmulArgs& args) {
  const std::int64_t inner = args.a.dim(args.transpose_a ? 0 : 1);
  matmul_flops_ += 2.0 * static_cast<double>(args.c.elements()) * static_cast<double>(inner);
}

void CountingOps::attention_forward(const AttentionForwardArgs& args) {
  attention_flops_ += 2 * score_product(args.q, args.k, args.mask.causal);  // q·kᵀ, p·v
}

void CountingOps::attention_backward(const AttentionBackwardArgs& args) {
  attention_flops_ += 5 * score_product(args.q, args.k, args.mask.causal);  // q·kᵀ again, dv, dp, dq, dk
}

}  // namespace megatron

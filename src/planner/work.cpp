#include "planner/work.h"

namespace megatron {

namespace {

double bytes_of(const ConstTensor& tensor) {
  return static_cast<double>(tensor.bytes());
}

// c[m, n] of an inner dimension.
ProductWork product(const ConstTensor& c, std::int64_t inner, double bytes, DType type) {
  const auto columns = c.rank() == 0 ? 1 : c.dim(c.rank() - 1);
  const auto rows = columns == 0 ? 0 : c.elements() / columns;
  return {static_cast<double>(rows), static_cast<double>(columns), static_cast<double>(inner), bytes, type};
}

// One product of scores' size, of what the mask leaves and of the whole; heads of all samples.
AttentionWork attention(const ConstTensor& q, const ConstTensor& k, const AttentionMask& mask, double products) {
  AttentionWork done{.type = q.dtype()};
  if (q.elements() == 0) return done;
  const auto queries = static_cast<double>(q.dim(0)), keys = static_cast<double>(k.dim(0));
  const double rows = static_cast<double>(q.elements()) / queries;  // b a d
  const std::int64_t offset = mask.query_offsets ? std::max<std::int64_t>(k.dim(0) - q.dim(0), 0) : 0;
  done.flops = products * 2 * rows * visible_pairs(q.dim(0), k.dim(0), offset, mask.causal, mask.window);
  done.square_flops = products * 2 * rows * queries * keys;
  done.scores = static_cast<double>(q.dim(1) * q.dim(2)) * queries * keys;
  return done;
}

}  // namespace

Work::Product Work::matmul(const MatmulArgs& args) {
  const double bytes = bytes_of(args.a) + bytes_of(args.b) + (args.accumulate ? 2 : 1) * bytes_of(args.c);
  return {product(args.c, args.a.dim(args.transpose_a ? 0 : 1), bytes, args.a.dtype())};
}

Work::Attention Work::attention_forward(const AttentionForwardArgs& args) {
  AttentionWork done = attention(args.q, args.k, args.mask, 2);  // q·kᵀ, p·v
  done.bytes = bytes_of(args.q) + bytes_of(args.k) + bytes_of(args.v) + bytes_of(args.out);
  return {done};
}

Work::Attention Work::attention_backward(const AttentionBackwardArgs& args) {
  AttentionWork done = attention(args.q, args.k, args.mask, 5);  // q·kᵀ again, dv, dp, dq, dk
  done.bytes = 2 * (bytes_of(args.q) + bytes_of(args.k) + bytes_of(args.v) + bytes_of(args.out));
  done.backward = true;
  return {done};
}

Work::Product Work::linear_forward(const LinearForwardArgs& args) {
  const double bytes = bytes_of(args.x) + bytes_of(args.weight) + bytes_of(args.y);
  return {product(args.y, args.weight.dim(1), bytes, args.x.dtype())};
}

Work::ProductAndMemory Work::linear_activation_forward(const LinearActivationForwardArgs& args) {
  const double bytes = bytes_of(args.x) + bytes_of(args.weight) + bytes_of(args.product);
  return {product(args.product, args.weight.dim(1), bytes, args.x.dtype()), std::get<0>(moved(args.product, args.y))};
}

Work::ProductAndMemory Work::linear_activation_backward(const LinearActivationBackwardArgs& args) {
  const double bytes = bytes_of(args.dy) + bytes_of(args.weight) + bytes_of(args.dactivated);
  return {product(args.dactivated, args.weight.dim(0), bytes, args.dy.dtype()),
          std::get<0>(moved(args.dactivated, args.product, args.dproduct))};
}

}  // namespace megatron

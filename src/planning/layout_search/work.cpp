#include "planning/layout_search/work.h"

#include <cmath>

namespace megatron {

namespace {

double bytes_of(const ConstTensor& tensor) {
  return static_cast<double>(tensor.bytes());
}

// c[m, n] of an inner dimension.
ProductWork product(const ConstTensor& c, std::int64_t inner, double bytes, DType type,
                    ProductKind kind = ProductKind::forward) {
  const auto columns = c.rank() == 0 ? 1 : c.dim(c.rank() - 1);
  const auto rows = columns == 0 ? 0 : c.elements() / columns;
  return {static_cast<double>(rows), static_cast<double>(columns), static_cast<double>(inner), bytes, type, kind};
}

// One product of scores' size, of what the mask leaves and of the whole; heads of all samples.
AttentionWork attention(const ConstTensor& q, const ConstTensor& k, const AttentionMask& mask, const Dropout& dropout,
                        double products) {
  AttentionWork done{.type = q.dtype()};
  if (q.elements() == 0) return done;
  const auto queries = static_cast<double>(q.dim(0)), keys = static_cast<double>(k.dim(0));
  const double rows = static_cast<double>(q.elements()) / queries;  // b a d
  const std::int64_t offset = mask.query_offsets ? std::max<std::int64_t>(k.dim(0) - q.dim(0), 0) : 0;
  done.flops = products * 2 * rows * visible_pairs(q.dim(0), k.dim(0), offset, mask.causal, mask.window);
  done.square_flops = products * 2 * rows * queries * keys;
  done.scores = static_cast<double>(q.dim(1) * q.dim(2)) * queries * keys;
  done.length = std::sqrt(queries * keys);
  done.head_size = static_cast<double>(q.dim(3));
  done.drawn = dropout.probability > 0;
  return done;
}

}  // namespace

Work::Product Work::matmul(const MatmulArgs& args) {
  const double bytes = bytes_of(args.a) + bytes_of(args.b) + (args.accumulate ? 2 : 1) * bytes_of(args.c);
  const ProductKind kind = args.transpose_a   ? ProductKind::weight_gradient
                           : args.transpose_b ? ProductKind::forward
                                              : ProductKind::input_gradient;
  return {product(args.c, args.a.dim(args.transpose_a ? 0 : 1), bytes, args.a.dtype(), kind)};
}

Work::Attention Work::attention_forward(const AttentionForwardArgs& args) {
  AttentionWork done = attention(args.q, args.k, args.mask, args.dropout, 2);  // q·kᵀ, p·v
  done.bytes = bytes_of(args.q) + bytes_of(args.k) + bytes_of(args.v) + bytes_of(args.out);
  return {done};
}

Work::Attention Work::attention_backward(const AttentionBackwardArgs& args) {
  AttentionWork done = attention(args.q, args.k, args.mask, args.dropout, 5);  // q·kᵀ again, dv, dp, dq, dk
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
  return {product(args.product, args.weight.dim(1), bytes, args.x.dtype()),
          std::get<0>(of_kind(row_of(args.activation).name, moved("bias_activation_forward", args.product, args.y)))};
}

Work::ProductAndMemory Work::linear_activation_backward(const LinearActivationBackwardArgs& args) {
  const double bytes = bytes_of(args.dy) + bytes_of(args.weight) + bytes_of(args.dactivated);
  const Memory activation = moved("bias_activation_backward", args.dactivated, args.product, args.dproduct);
  return {product(args.dactivated, args.weight.dim(0), bytes, args.dy.dtype(), ProductKind::input_gradient),
          std::get<0>(of_kind(row_of(args.activation).name, activation))};
}

}  // namespace megatron

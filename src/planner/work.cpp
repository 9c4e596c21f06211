#include "planner/work.h"

namespace megatron::work {

namespace {

double bytes_of(const ConstTensor& tensor) {
  return static_cast<double>(tensor.bytes());
}

template <class... Tensors>
Memory moved(const Tensors&... tensors) {
  return {MemoryWork{(bytes_of(tensors) + ...)}};
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

Product matmul(const MatmulArgs& args) {
  const double bytes = bytes_of(args.a) + bytes_of(args.b) + (args.accumulate ? 2 : 1) * bytes_of(args.c);
  return {product(args.c, args.a.dim(args.transpose_a ? 0 : 1), bytes, args.a.dtype())};
}
Memory add_bias(const AddBiasArgs& args) {
  return moved(args.x, args.x);
}
Memory column_sum(const ColumnSumArgs& args) {
  return moved(args.x, args.y);
}
Memory bias_activation_forward(const BiasActivationForwardArgs& args) {
  return moved(args.x, args.y);
}
Memory bias_activation_backward(const BiasActivationBackwardArgs& args) {
  return moved(args.dy, args.x, args.dx);
}
Memory dropout_add_forward(const DropoutAddForwardArgs& args) {
  return moved(args.x, args.residual, args.y);
}
Memory dropout_add_backward(const DropoutAddBackwardArgs& args) {
  return moved(args.dy, args.dx);
}
Memory layer_norm_forward(const LayerNormForwardArgs& args) {
  return moved(args.x, args.y);
}
Memory layer_norm_backward(const LayerNormBackwardArgs& args) {
  return moved(args.dy, args.x, args.residual_gradient, args.dx);
}
Memory rotary(const RotaryArgs& args) {
  return moved(args.x, args.x);
}
Memory append_rows(const AppendRowsArgs& args) {
  return moved(args.x, args.x);
}
Attention attention_forward(const AttentionForwardArgs& args) {
  AttentionWork done = attention(args.q, args.k, args.mask, 2);  // q·kᵀ, p·v
  done.bytes = bytes_of(args.q) + bytes_of(args.k) + bytes_of(args.v) + bytes_of(args.out);
  return {done};
}
Attention attention_backward(const AttentionBackwardArgs& args) {
  AttentionWork done = attention(args.q, args.k, args.mask, 5);  // q·kᵀ again, dv, dp, dq, dk
  done.bytes = 2 * (bytes_of(args.q) + bytes_of(args.k) + bytes_of(args.v) + bytes_of(args.out));
  done.backward = true;
  return {done};
}
Memory embedding_forward(const EmbeddingForwardArgs& args) {
  return moved(args.y, args.y);
}
Memory embedding_backward(const EmbeddingBackwardArgs& args) {
  return moved(args.dy, args.dy, args.dy);  // of the rows that it hits
}
Memory cross_entropy_local(const CrossEntropyLocalArgs& args) {
  return moved(args.logits);
}
Memory cross_entropy_rescale(const CrossEntropyRescaleArgs& args) {
  return moved(args.local_maximum, args.maximum, args.sum_exp);
}
Memory cross_entropy_loss(const CrossEntropyLossArgs& args) {
  return moved(args.maximum, args.sum_exp, args.target_logit, args.weights, args.losses);
}
Memory cross_entropy_backward(const CrossEntropyBackwardArgs& args) {
  return moved(args.logits, args.logits);
}
Memory route_forward(const RouteForwardArgs& args) {
  return moved(args.logits, args.probabilities, args.chosen, args.gates);
}
Memory plan_routes(const PlanRoutesArgs& args) {
  return moved(args.chosen, args.slots, args.entries, args.counts);
}
Memory route_losses(const RouteLossesArgs& args) {
  return moved(args.probabilities, args.log_sums);
}
Memory route_backward(const RouteBackwardArgs& args) {
  return moved(args.probabilities, args.dgates, args.dlogits);
}
Memory tally_routes(const TallyRoutesArgs& args) {
  return moved(args.counts, args.gaps);
}
Memory shift_choice_bias(const ShiftChoiceBiasArgs& args) {
  return moved(args.choices, args.bias);
}
Memory dispatch_rows(const DispatchRowsArgs& args) {
  return moved(args.y, args.y);
}
Memory combine_rows(const CombineRowsArgs& args) {
  return moved(args.x, args.y);
}
Memory combine_gates_backward(const CombineGatesBackwardArgs& args) {
  return moved(args.x, args.dy, args.dgates);
}
Memory mix_rows_forward(const MixRowsForwardArgs& args) {
  return moved(args.a, args.b, args.y);
}
Memory mix_rows_backward(const MixRowsBackwardArgs& args) {
  return moved(args.dy, args.b, args.db, args.db);
}
Memory jitter_rows(const JitterRowsArgs& args) {
  return moved(args.x, args.y);
}
Memory adamw(const AdamWArgs& args) {
  return moved(args.value, args.value, args.gradient, args.m, args.m, args.v, args.v);
}
Memory sgd(const SgdArgs& args) {
  return moved(args.value, args.value, args.gradient, args.m, args.m);
}
Memory square_sum(const SquareSumArgs& args) {
  return moved(args.x);
}
Memory clip_factor(const ClipFactorArgs& args) {
  return moved(args.norm);
}
Memory normal(const NormalArgs& args) {
  return moved(args.y);
}
Memory fill(const Tensor& y, double) {
  return moved(y);
}
Memory copy(const ConstTensor& x, const Tensor& y) {
  return moved(x, y);
}
Memory add(const ConstTensor& x, const Tensor& y) {
  return moved(x, y, y);
}
Memory scale(const Tensor& y, double) {
  return moved(y, y);
}

Product linear_forward(const LinearForwardArgs& args) {
  const double bytes = bytes_of(args.x) + bytes_of(args.weight) + bytes_of(args.y);
  return {product(args.y, args.weight.dim(1), bytes, args.x.dtype())};
}
ProductAndMemory linear_activation_forward(const LinearActivationForwardArgs& args) {
  const double bytes = bytes_of(args.x) + bytes_of(args.weight) + bytes_of(args.product);
  return {product(args.product, args.weight.dim(1), bytes, args.x.dtype()), std::get<0>(moved(args.product, args.y))};
}
ProductAndMemory linear_activation_backward(const LinearActivationBackwardArgs& args) {
  const double bytes = bytes_of(args.dy) + bytes_of(args.weight) + bytes_of(args.dactivated);
  return {product(args.dactivated, args.weight.dim(0), bytes, args.dy.dtype()),
          std::get<0>(moved(args.dactivated, args.product, args.dproduct))};
}

}  // namespace megatron::work

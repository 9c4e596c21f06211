// What each verb of Ops does, as a recording needs it: a function of the verb's name and arguments, and of fused verbs
// what they consist of. Tensors are not touched.
#pragma once

#include <tuple>

#include "planner/recording.h"

namespace megatron {

class Work {
 public:
  using Product = std::tuple<ProductWork>;
  using Attention = std::tuple<AttentionWork>;
  using Memory = std::tuple<MemoryWork>;
  using ProductAndMemory = std::tuple<ProductWork, MemoryWork>;

  static Product matmul(const MatmulArgs& args);
  static Product linear_forward(const LinearForwardArgs& args);
  static ProductAndMemory linear_activation_forward(const LinearActivationForwardArgs& args);
  static ProductAndMemory linear_activation_backward(const LinearActivationBackwardArgs& args);
  static Attention attention_forward(const AttentionForwardArgs& args);
  static Attention attention_backward(const AttentionBackwardArgs& args);

  // The others move memory: each tensor once for every time that it is read or written.
  static Memory add_bias(const AddBiasArgs& a) { return moved(a.x, a.x); }
  static Memory column_sum(const ColumnSumArgs& a) { return moved(a.x, a.y); }
  static Memory bias_activation_forward(const BiasActivationForwardArgs& a) { return moved(a.x, a.y); }
  static Memory bias_activation_backward(const BiasActivationBackwardArgs& a) { return moved(a.dy, a.x, a.dx); }
  static Memory dropout_add_forward(const DropoutAddForwardArgs& a) { return moved(a.x, a.residual, a.y); }
  static Memory dropout_add_backward(const DropoutAddBackwardArgs& a) { return moved(a.dy, a.dx); }
  static Memory layer_norm_forward(const LayerNormForwardArgs& a) { return moved(a.x, a.y); }
  static Memory layer_norm_backward(const LayerNormBackwardArgs& a) {
    return moved(a.dy, a.x, a.residual_gradient, a.dx);
  }
  static Memory rotary(const RotaryArgs& a) { return moved(a.x, a.x); }
  static Memory append_rows(const AppendRowsArgs& a) { return moved(a.x, a.x); }
  static Memory embedding_forward(const EmbeddingForwardArgs& a) { return moved(a.y, a.y); }
  // Reads dy, and reads and writes the rows of the table that it hits.
  static Memory embedding_backward(const EmbeddingBackwardArgs& a) { return moved(a.dy, a.dy, a.dy); }
  static Memory cross_entropy_local(const CrossEntropyLocalArgs& a) { return moved(a.logits); }
  static Memory cross_entropy_rescale(const CrossEntropyRescaleArgs& a) {
    return moved(a.local_maximum, a.maximum, a.sum_exp);
  }
  static Memory cross_entropy_loss(const CrossEntropyLossArgs& a) {
    return moved(a.maximum, a.sum_exp, a.target_logit, a.weights, a.losses);
  }
  static Memory cross_entropy_backward(const CrossEntropyBackwardArgs& a) { return moved(a.logits, a.logits); }
  static Memory route_forward(const RouteForwardArgs& a) { return moved(a.logits, a.probabilities, a.chosen, a.gates); }
  static Memory plan_routes(const PlanRoutesArgs& a) { return moved(a.chosen, a.slots, a.entries, a.counts); }
  static Memory route_losses(const RouteLossesArgs& a) { return moved(a.probabilities, a.log_sums); }
  static Memory route_backward(const RouteBackwardArgs& a) { return moved(a.probabilities, a.dgates, a.dlogits); }
  static Memory tally_routes(const TallyRoutesArgs& a) { return moved(a.counts, a.gaps); }
  static Memory shift_choice_bias(const ShiftChoiceBiasArgs& a) { return moved(a.choices, a.bias); }
  static Memory dispatch_rows(const DispatchRowsArgs& a) { return moved(a.y, a.y); }
  static Memory combine_rows(const CombineRowsArgs& a) { return moved(a.x, a.y); }
  static Memory combine_gates_backward(const CombineGatesBackwardArgs& a) { return moved(a.x, a.dy, a.dgates); }
  static Memory mix_rows_forward(const MixRowsForwardArgs& a) { return moved(a.a, a.b, a.y); }
  static Memory mix_rows_backward(const MixRowsBackwardArgs& a) { return moved(a.dy, a.b, a.db, a.db); }
  static Memory jitter_rows(const JitterRowsArgs& a) { return moved(a.x, a.y); }
  static Memory adamw(const AdamWArgs& a) { return moved(a.value, a.value, a.gradient, a.m, a.m, a.v, a.v); }
  static Memory sgd(const SgdArgs& a) { return moved(a.value, a.value, a.gradient, a.m, a.m); }
  static Memory square_sum(const SquareSumArgs& a) { return moved(a.x); }
  static Memory clip_factor(const ClipFactorArgs& a) { return moved(a.norm); }
  static Memory normal(const NormalArgs& a) { return moved(a.y); }
  static Memory fill(const Tensor& y, double) { return moved(y); }
  static Memory copy(const ConstTensor& x, const Tensor& y) { return moved(x, y); }
  static Memory add(const ConstTensor& x, const Tensor& y) { return moved(x, y, y); }
  static Memory scale(const Tensor& y, double) { return moved(y, y); }

 private:
  template <class... Tensors>
  static Memory moved(const Tensors&... tensors) {
    return {MemoryWork{(static_cast<double>(tensors.bytes()) + ...)}};
  }
};

}  // namespace megatron

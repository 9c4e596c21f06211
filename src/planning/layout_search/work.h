// The work of each verb of Ops, as a recording needs it: a function of the verb's name and arguments; for fused verbs,
// the work of their parts. Tensors are not touched.
#pragma once

#include <string_view>
#include <tuple>

#include "planning/layout_search/recording.h"

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
  static Memory activation_again(const ActivationAgainArgs& a) {
    return of_kind(row_of(a.activation).name, moved("bias_activation_forward", a.product, a.y));
  }
  static ProductAndMemory linear_activation_backward(const LinearActivationBackwardArgs& args);
  static Attention attention_forward(const AttentionForwardArgs& args);
  static Attention attention_backward(const AttentionBackwardArgs& args);

  // The others move memory: each tensor once for every time that it is read or written.
  static Memory add_bias(const AddBiasArgs& a) { return moved("add_bias", a.x, a.x); }
  static Memory column_sum(const ColumnSumArgs& a) { return moved("column_sum", a.x, a.y); }
  static Memory bias_activation_forward(const BiasActivationForwardArgs& a) {
    return of_kind(row_of(a.activation).name, moved("bias_activation_forward", a.x, a.y));
  }
  static Memory bias_activation_backward(const BiasActivationBackwardArgs& a) {
    return of_kind(row_of(a.activation).name, moved("bias_activation_backward", a.dy, a.x, a.dx));
  }
  static Memory dropout_add_forward(const DropoutAddForwardArgs& a) {
    return of_kind(kind_of(a.dropout), moved("dropout_add_forward", a.x, a.residual, a.y));
  }
  static Memory dropout_add_backward(const DropoutAddBackwardArgs& a) {
    return of_kind(kind_of(a.dropout), moved("dropout_add_backward", a.dy, a.dx));
  }
  static Memory layer_norm_forward(const LayerNormForwardArgs& a) {
    return of_kind(row_of(a.kind).name, moved("layer_norm_forward", a.x, a.y));
  }
  static Memory layer_norm_backward(const LayerNormBackwardArgs& a) {
    return of_kind(row_of(a.kind).name, moved("layer_norm_backward", a.dy, a.x, a.residual_gradient, a.dx));
  }
  static Memory rotary(const RotaryArgs& a) { return moved("rotary", a.x, a.x); }
  static Memory append_rows(const AppendRowsArgs& a) { return moved("append_rows", a.x, a.x); }
  static Memory merge_attention(const MergeAttentionArgs& a) { return moved("merge_attention", a.part, a.out, a.out); }
  static Memory embedding_forward(const EmbeddingForwardArgs& a) { return moved("embedding_forward", a.y, a.y); }
  // Reads dy, and reads and writes the rows of the table that it hits.
  static Memory embedding_backward(const EmbeddingBackwardArgs& a) {
    return moved("embedding_backward", a.dy, a.dy, a.dy);
  }
  static Memory cross_entropy_local(const CrossEntropyLocalArgs& a) { return moved("cross_entropy_local", a.logits); }
  static Memory cross_entropy_rescale(const CrossEntropyRescaleArgs& a) {
    return moved("cross_entropy_rescale", a.local_maximum, a.maximum, a.sum_exp);
  }
  static Memory cross_entropy_loss(const CrossEntropyLossArgs& a) {
    return moved("cross_entropy_loss", a.maximum, a.sum_exp, a.target_logit, a.weights, a.losses);
  }
  static Memory cross_entropy_backward(const CrossEntropyBackwardArgs& a) {
    return moved("cross_entropy_backward", a.logits, a.logits);
  }
  static Memory route_forward(const RouteForwardArgs& a) {
    return moved("route_forward", a.logits, a.probabilities, a.chosen, a.gates);
  }
  static Memory plan_routes(const PlanRoutesArgs& a) {
    return moved("plan_routes", a.chosen, a.slots, a.entries, a.counts);
  }
  static Memory route_losses(const RouteLossesArgs& a) { return moved("route_losses", a.probabilities, a.log_sums); }
  static Memory route_backward(const RouteBackwardArgs& a) {
    return moved("route_backward", a.probabilities, a.dgates, a.dlogits);
  }
  static Memory tally_routes(const TallyRoutesArgs& a) { return moved("tally_routes", a.counts, a.gaps); }
  static Memory shift_choice_bias(const ShiftChoiceBiasArgs& a) {
    return moved("shift_choice_bias", a.choices, a.bias);
  }
  static Memory dispatch_rows(const DispatchRowsArgs& a) { return moved("dispatch_rows", a.y, a.y); }
  static Memory combine_rows(const CombineRowsArgs& a) { return moved("combine_rows", a.x, a.y); }
  static Memory combine_gates_backward(const CombineGatesBackwardArgs& a) {
    return moved("combine_gates_backward", a.x, a.dy, a.dgates);
  }
  static Memory mix_rows_forward(const MixRowsForwardArgs& a) { return moved("mix_rows_forward", a.a, a.b, a.y); }
  static Memory mix_rows_backward(const MixRowsBackwardArgs& a) {
    return moved("mix_rows_backward", a.dy, a.b, a.db, a.db);
  }
  static Memory jitter_rows(const JitterRowsArgs& a) { return moved("jitter_rows", a.x, a.y); }
  static Memory adamw(const AdamWArgs& a) {
    return of_update(a.m, moved("adamw", a.value, a.value, a.gradient, a.m, a.m, a.v, a.v));
  }
  static Memory sgd(const SgdArgs& a) { return of_update(a.m, moved("sgd", a.value, a.value, a.gradient, a.m, a.m)); }
  static Memory lion(const LionArgs& a) {
    return of_update(a.m, moved("lion", a.value, a.value, a.gradient, a.m, a.m));
  }
  static Memory square_sum(const SquareSumArgs& a) { return of_parameters(moved("square_sum", a.x)); }
  static Memory divide_by_norm(const DivideByNormArgs& a) { return of_parameters(moved("divide_by_norm", a.x, a.x)); }
  static Memory judge_step(const JudgeStepArgs& a) {
    return moved("judge_step", a.square_sum, a.all_square_sum, a.uncounted_square_sum, a.losses, a.norm, a.factor,
                 a.skip, a.bad_loss);
  }
  static Memory normal(const NormalArgs& a) { return moved("normal", a.y); }
  static Memory fill(const Tensor& y, double) { return moved("fill", y); }
  static Memory copy(const ConstTensor& x, const Tensor& y) { return moved("copy", x, y); }
  static Memory add(const ConstTensor& x, const Tensor& y) { return moved("add", x, y, y); }
  static Memory scale(const Tensor& y, double) { return moved("scale", y, y); }

 private:
  template <class... Tensors>
  static Memory moved(std::string_view operation, const Tensors&... tensors) {
    return {MemoryWork{.bytes = (static_cast<double>(tensors.bytes()) + ...), .operation = operation}};
  }
  static Memory of_kind(std::string_view kind, Memory work) {
    std::get<0>(work).kind = kind;
    return work;
  }
  /// States in bf16 are fewer bytes and no less time.
  static Memory of_update(const ConstTensor& state, const Memory& work) {
    return of_parameters(state.dtype() == DType::bf16 ? of_kind("rounded", work) : work);
  }
  static Memory of_parameters(Memory work) {
    std::get<0>(work).of_parameters = true;
    return work;
  }
  static std::string_view kind_of(const Dropout& dropout) { return dropout.probability > 0 ? "drawn" : ""; }
};

}  // namespace megatron

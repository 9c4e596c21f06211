// What each verb of Ops does, as a recording needs it: one function of the verb's name and arguments for each, and of
// fused verbs what they consist of. Tensors are not touched.
#pragma once

#include <tuple>

#include "planner/recording.h"

namespace megatron::work {

using Product = std::tuple<ProductWork>;
using Attention = std::tuple<AttentionWork>;
using Memory = std::tuple<MemoryWork>;
using ProductAndMemory = std::tuple<ProductWork, MemoryWork>;

Product matmul(const MatmulArgs& args);
Memory add_bias(const AddBiasArgs& args);
Memory column_sum(const ColumnSumArgs& args);
Memory bias_activation_forward(const BiasActivationForwardArgs& args);
Memory bias_activation_backward(const BiasActivationBackwardArgs& args);
Memory dropout_add_forward(const DropoutAddForwardArgs& args);
Memory dropout_add_backward(const DropoutAddBackwardArgs& args);
Memory layer_norm_forward(const LayerNormForwardArgs& args);
Memory layer_norm_backward(const LayerNormBackwardArgs& args);
Memory rotary(const RotaryArgs& args);
Memory append_rows(const AppendRowsArgs& args);
Attention attention_forward(const AttentionForwardArgs& args);
Attention attention_backward(const AttentionBackwardArgs& args);
Memory embedding_forward(const EmbeddingForwardArgs& args);
Memory embedding_backward(const EmbeddingBackwardArgs& args);
Memory cross_entropy_local(const CrossEntropyLocalArgs& args);
Memory cross_entropy_rescale(const CrossEntropyRescaleArgs& args);
Memory cross_entropy_loss(const CrossEntropyLossArgs& args);
Memory cross_entropy_backward(const CrossEntropyBackwardArgs& args);
Memory route_forward(const RouteForwardArgs& args);
Memory plan_routes(const PlanRoutesArgs& args);
Memory route_losses(const RouteLossesArgs& args);
Memory route_backward(const RouteBackwardArgs& args);
Memory tally_routes(const TallyRoutesArgs& args);
Memory shift_choice_bias(const ShiftChoiceBiasArgs& args);
Memory dispatch_rows(const DispatchRowsArgs& args);
Memory combine_rows(const CombineRowsArgs& args);
Memory combine_gates_backward(const CombineGatesBackwardArgs& args);
Memory mix_rows_forward(const MixRowsForwardArgs& args);
Memory mix_rows_backward(const MixRowsBackwardArgs& args);
Memory jitter_rows(const JitterRowsArgs& args);
Memory adamw(const AdamWArgs& args);
Memory sgd(const SgdArgs& args);
Memory square_sum(const SquareSumArgs& args);
Memory clip_factor(const ClipFactorArgs& args);
Memory normal(const NormalArgs& args);
Memory fill(const Tensor& y, double value);
Memory copy(const ConstTensor& x, const Tensor& y);
Memory add(const ConstTensor& x, const Tensor& y);
Memory scale(const Tensor& y, double factor);

Product linear_forward(const LinearForwardArgs& args);
ProductAndMemory linear_activation_forward(const LinearActivationForwardArgs& args);
ProductAndMemory linear_activation_backward(const LinearActivationBackwardArgs& args);

}  // namespace megatron::work

// Every verb of Ops, once: its name, its parameters and their names. The interface, what the backends declare, what
// passes verbs on and what plays them without computing are made of this list; the kernels of both backends and their
// tests are what else a new verb touches.
#pragma once

/// The comments of their arguments in ops.h, expert_routing.h and mixed_rows.h say what the verbs compute. fill: sets,
/// any dtype; copy: y = x, converting between float dtypes, of the same element count; add: y += x; scale: y *= factor.
#define MEGATRON_VERBS(VERB)                                                       \
  VERB(matmul, (const MatmulArgs& args), (args))                                   \
  VERB(add_bias, (const AddBiasArgs& args), (args))                                \
  VERB(column_sum, (const ColumnSumArgs& args), (args))                            \
  VERB(bias_activation_forward, (const BiasActivationForwardArgs& args), (args))   \
  VERB(bias_activation_backward, (const BiasActivationBackwardArgs& args), (args)) \
  VERB(dropout_add_forward, (const DropoutAddForwardArgs& args), (args))           \
  VERB(dropout_add_backward, (const DropoutAddBackwardArgs& args), (args))         \
  VERB(layer_norm_forward, (const LayerNormForwardArgs& args), (args))             \
  VERB(layer_norm_backward, (const LayerNormBackwardArgs& args), (args))           \
  VERB(rotary, (const RotaryArgs& args), (args))                                   \
  VERB(append_rows, (const AppendRowsArgs& args), (args))                          \
  VERB(attention_forward, (const AttentionForwardArgs& args), (args))              \
  VERB(attention_backward, (const AttentionBackwardArgs& args), (args))            \
  VERB(merge_attention, (const MergeAttentionArgs& args), (args))                  \
  VERB(embedding_forward, (const EmbeddingForwardArgs& args), (args))              \
  VERB(embedding_backward, (const EmbeddingBackwardArgs& args), (args))            \
  VERB(cross_entropy_local, (const CrossEntropyLocalArgs& args), (args))           \
  VERB(cross_entropy_rescale, (const CrossEntropyRescaleArgs& args), (args))       \
  VERB(cross_entropy_loss, (const CrossEntropyLossArgs& args), (args))             \
  VERB(cross_entropy_backward, (const CrossEntropyBackwardArgs& args), (args))     \
  VERB(route_forward, (const RouteForwardArgs& args), (args))                      \
  VERB(plan_routes, (const PlanRoutesArgs& args), (args))                          \
  VERB(route_losses, (const RouteLossesArgs& args), (args))                        \
  VERB(route_backward, (const RouteBackwardArgs& args), (args))                    \
  VERB(tally_routes, (const TallyRoutesArgs& args), (args))                        \
  VERB(shift_choice_bias, (const ShiftChoiceBiasArgs& args), (args))               \
  VERB(dispatch_rows, (const DispatchRowsArgs& args), (args))                      \
  VERB(combine_rows, (const CombineRowsArgs& args), (args))                        \
  VERB(combine_gates_backward, (const CombineGatesBackwardArgs& args), (args))     \
  VERB(mix_rows_forward, (const MixRowsForwardArgs& args), (args))                 \
  VERB(mix_rows_backward, (const MixRowsBackwardArgs& args), (args))               \
  VERB(jitter_rows, (const JitterRowsArgs& args), (args))                          \
  VERB(adamw, (const AdamWArgs& args), (args))                                     \
  VERB(sgd, (const SgdArgs& args), (args))                                         \
  VERB(lion, (const LionArgs& args), (args))                                       \
  VERB(square_sum, (const SquareSumArgs& args), (args))                            \
  VERB(divide_by_norm, (const DivideByNormArgs& args), (args))                     \
  VERB(judge_step, (const JudgeStepArgs& args), (args))                            \
  VERB(normal, (const NormalArgs& args), (args))                                   \
  VERB(fill, (Tensor y, double value), (y, value))                                 \
  VERB(copy, (ConstTensor x, Tensor y), (x, y))                                    \
  VERB(add, (ConstTensor x, Tensor y), (x, y))                                     \
  VERB(scale, (Tensor y, double factor), (y, factor))

/// Verbs of which a backend may make one pass over memory; others have those above that they consist of, one after the
/// other (linear.cpp), in the same bits as if those had been called.
#define MEGATRON_FUSED_VERBS(VERB)                                                   \
  VERB(linear_forward, (const LinearForwardArgs& args), (args))                      \
  VERB(linear_activation_forward, (const LinearActivationForwardArgs& args), (args)) \
  VERB(activation_again, (const ActivationAgainArgs& args), (args))                  \
  VERB(linear_activation_backward, (const LinearActivationBackwardArgs& args), (args))

// A few training steps of a tiny model on any layout, with ranks as threads: what the parity tests compare.
#pragma once

#include <limits>
#include <vector>

#include "support/boxes.h"
#include "support/tiny_batches.h"

namespace megatron::test {

/// 4 layers, hidden 32, 4 heads, sequence 16, vocabulary 50 (padded to 64), dropout 0.1, batch 8, one rank.
Config tiny_config();

// Other models of these sizes. With two groups keys are shared by every two of four tensor ranks, with one by all.
void like_llama(ModelConfig& model);      ///< rotary positions, RMSNorm, SwiGLU, no biases, a separate head, two groups
void with_one_group(ModelConfig& model);  ///< and ALiBi
void with_normed_heads(ModelConfig& model);    ///< norms of queries and keys, of which half turn; one group, GeGLU
void with_window(ModelConfig& model);          ///< wide heads, scaled embeddings, biases of query, key and value alone
void with_parallel_parts(ModelConfig& model);  ///< through one norm; a norm of embeddings, a bias of logits
void like_bert(ModelConfig& model);            ///< post-norm, with a norm of embeddings
void like_megatron_bert(ModelConfig& model);   ///< pre-norm
void like_t5(ModelConfig& model);              ///< 3 + 1 layers, a bias by distance, RMSNorm, no biases, a scaled head
void with_experts(ModelConfig& model);         ///< 4 in every second layer, 2 per token
void with_balanced_experts(ModelConfig& model);  ///< and a choice bias in place of the balance loss
void with_shared_experts(ModelConfig& model);    ///< two in addition, behind a gate
void with_residual_experts(ModelConfig& model);  ///< mixed with a dense part, their router's input noisy
void like_megatron_t5(ModelConfig& model);       ///< 2 + 2 layers, learned positions, a bias of logits

struct TrainingTrace {
  std::vector<double> losses, norms;                     // by step
  double evaluation = 0;                                 // loss without dropout after the last step, on its samples
  std::vector<std::vector<double>> choices;              // by step, of experts (Replica::Update)
  double gap = std::numeric_limits<double>::infinity();  // the least router gap of all passes and ranks
  NamedValues gradients;                                 // step 1's, reassembled
  NamedValues parameters;                                // after the last step
};

/// Trains for `steps` on tensor × parallel.context × data × pipeline thread ranks as the configuration says
/// (parallel.data is set from `data`), a batch that grows and a constant loss scale included. Tokens are a fixed
/// pseudo-random function of (step, sample, position); kTinyEnd ends documents where the configuration asks for them.
/// With a check of collectives and of records, unless `checked` is false.
TrainingTrace train_tiny(Config config, int tensor, int data, int pipeline, int steps = 5, bool checked = true);

/// Losses of evaluations before and after a training step, on parallel.pipeline thread ranks.
std::vector<double> evaluate_tiny(const Config& config);

/// ‖a − b‖ / ‖b‖ over two equally long vectors.
double relative_difference(const std::vector<float>& a, const std::vector<float>& b);

}  // namespace megatron::test

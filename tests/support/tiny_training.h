// A few training steps of a tiny model on any layout, with ranks as threads: what the parity tests compare.
#pragma once

#include <functional>
#include <limits>
#include <span>
#include <vector>

#include "config/schema/run_schedule.h"
#include "support/boxes.h"
#include "training/step/losses.h"
#include "training/step/replica.h"

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
TrainingTrace train_tiny(Config config, int tensor, int data, int pipeline, int steps = 5);

/// Losses of evaluations before and after a training step, on parallel.pipeline thread ranks.
std::vector<double> evaluate_tiny(const Config& config);

inline constexpr int kTinyEnd = 3;

/// ‖a − b‖ / ‖b‖ over two equally long vectors.
double relative_difference(const std::vector<float>& a, const std::vector<float>& b);

/// One data rank's micro-batches of a step in host memory.
class TinyBatches {
 public:
  /// A context rank gets its rows, where parallel.context divides them.
  TinyBatches(const Config& config, int data_rank, int context_rank = 0);
  /// Views into this object; valid until the next call.
  std::span<const MicroBatch> step(int step);
  /// Targets in the global batch that step() gave, or what their weights say.
  double targets() const { return counts_.front(); }
  /// These as the loss' counts, and precision.loss_scale. Valid as long as this object.
  LossScaling loss() const;
  static int token(int step, std::int64_t sample, std::int64_t position, std::int64_t vocab);

 private:
  void count_losses(int step, const StepShape& shape);
  void count_pairs(int step, const StepShape& shape);
  void count_translations(int step, const StepShape& shape);
  void place_sample(std::size_t k, std::int64_t column, int step, std::int64_t sequence);
  void place_pair(std::size_t k, std::int64_t column, int step, std::int64_t sequence);
  void place_translation(std::size_t k, std::int64_t column, int step);

  void cut(std::size_t count, const StepShape& shape);

  Config config_;
  bool pairs_;            // pairs of texts, for an encoder (tiny_pairs.h)
  bool translations_;     // for an encoder-decoder (tiny_translation.h)
  bool instructions_;     // packed: of documents by themselves, in which some targets are learned
  std::int64_t columns_;  // in a micro-batch
  LossWeights weigh_;
  RunSchedule schedule_;
  int data_rank_;
  std::vector<double> counts_;  // by term of the loss
  std::vector<std::vector<int>> tokens_, targets_, document_starts_, document_position_ids_, types_, lengths_, labels_;
  std::vector<std::vector<int>> encoder_tokens_, encoder_lengths_;
  std::vector<std::vector<float>> weights_;
  std::vector<int> position_ids_, positions_, encoder_position_ids_, encoder_positions_;
  std::vector<MicroBatch> micro_batches_;
  BatchBuffer cut_;  // memory of one context rank's rows, of micro_batches_
  std::vector<MicroBatch> cut_micro_batches_;
};

}  // namespace megatron::test

// TinyBatches: micro-batches that tests of training make up, the same on every layout.
#pragma once

#include <span>
#include <vector>

#include "config/schema/run_schedule.h"
#include "training/datasets/losses.h"
#include "training/step/replica.h"

namespace megatron::test {

inline constexpr int kTinyEnd = 3;

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

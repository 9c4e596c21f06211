// ForwardPasses: a checkpoint's model on tensor × pipeline × data ranks for passes without a backward: weights without
// gradients and optimizer, and nothing kept. Scorers (scorer.h, label_scorer.h) own the batches and what passes set.
//
// Owns all memory but that, and knows it to the byte beforehand.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "checkpoint/store/checkpoint.h"
#include "models/batch/batch_layout.h"
#include "training/step/compute.h"
#include "training/step/replica.h"

namespace megatron {

struct ScoringLayout {
  int ranks = 1;
  std::int64_t tensor = 1, pipeline = 1;  ///< the other ranks are data ranks
  std::int64_t micro_batch_size = 1;
  std::string precision = "fp32";  ///< for weights and arithmetic, or "checkpoint" for what the model was trained with
};

/// The configuration of a checkpoint's model for passes on these ranks. Error(checkpoint) if it has none,
/// Error(configuration) if the model cannot be shared like that.
Config config_for_passes(const CheckpointReader& checkpoint, const ScoringLayout& layout);
/// The same, and Error(configuration) if the model writes no text.
Config config_for_decoding(const CheckpointReader& checkpoint, const ScoringLayout& layout);

/// Micro-batches of a pass: enough that the pipeline's bubble is small.
std::int64_t micro_batches_together(const GridShape& shape);

/// A pass over micro-batches: their layout, and the results that it sets.
struct PassForm {
  BatchLayout batch;
  std::function<TargetResults(const BatchLayout& batch, Arena& memory)> results;  ///< shapes of a micro-batch's results
};

class ForwardPasses {
 public:
  /// `config` as config_for_passes() says, with a `run` whose device is chosen. All references must outlive it.
  ForwardPasses(const Config& config, const ProcessGrid& grid, Backend& backend, const PassForm& form);
  /// Memory that it takes on the rank at `at`, and the batches of a pass.
  static MemoryUse plan(const Config& config, const GridShape& shape, const GridCoordinates& at, const PassForm& form,
                        TransportKind kind);

  void load(const CheckpointReader& checkpoint);
  /// At most micro_batches_together(); sets the results on the ranks of the last stage. The sum of their losses is then
  /// in loss_sum(), of this rank's share.
  void play(std::span<const MicroBatch> micro_batches, std::span<const TargetResults> results);
  double loss_sum() const;  ///< the first term's
  bool reads(const BatchField& field) const;
  MemoryUse used() const;  ///< without batches

 private:
  const Config& config_;
  const ProcessGrid& grid_;
  Backend& backend_;
  TensorRegion region_;
  ParameterStore store_;
  Stages chunks_;
  std::unique_ptr<PipelineExecutor> executor_;
  Buffer scratch_memory_;
  Arena scratch_;
  Tensor loss_sums_;
};

}  // namespace megatron

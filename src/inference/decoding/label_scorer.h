// LabelScorer: what a checkpoint's model with a task's head predicts for samples, and how many labels are right, on any
// tensor × pipeline × data ranks. The passes are forward_passes.h's, the counts training/step/label_scores.h's.
#pragma once

#include <functional>

#include "inference/decoding/forward_passes.h"
#include "training/step/device_batches.h"
#include "training/step/label_scores.h"

namespace megatron {

struct LabelResult {
  LabelCounts counts;
  double loss = 0;  ///< mean cross entropy; 0 without labels
  /// By sample: the softmax of its logits, or a question's choices, by class. On rank 0, and where they are asked for.
  std::vector<std::vector<double>> probabilities;
};

/// config_for_passes() of a model with the head of `task`; another is Error(configuration).
Config config_for_labels(const CheckpointReader& checkpoint, const ScoringLayout& layout, const std::string& task);

MemoryUse plan_labels(const Config& config, const GridShape& shape, const GridCoordinates& at, TransportKind kind);

class LabelScorer {
 public:
  /// As config_for_labels() says, with a `run` whose device is chosen. Grid and backend must outlive the scorer.
  LabelScorer(const Config& config, const ProcessGrid& grid, Backend& backend);

  void load(const CheckpointReader& checkpoint) { passes_.load(checkpoint); }
  /// Each sample once, on every rank. `progress` hears how many are done. Collective. Error(numerics) if the loss, or
  /// a logit that a probability is asked of, is not a finite number.
  LabelResult score(Samples& samples, bool with_probabilities = false,
                    const std::function<void(std::int64_t done)>& progress = nullptr);
  MemoryUse used() const;

 private:
  const Config config_;
  const ProcessGrid& grid_;
  ForwardPasses passes_;
  BatchMemory batch_;
  LabelScores scores_;
};

}  // namespace megatron

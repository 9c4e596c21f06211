// LabelScores: what a model with a task's head makes of labelled samples in an evaluation: which class has the largest
// logit, counted by label. Data ranks have different samples; each counts once, so that counts are the same on every
// layout, but for logits that rounding makes equal.
//
// Owns the memory of the scores. Knows no weights, no executor and no files.
#pragma once

#include <functional>
#include <span>
#include <vector>

#include "backend/ops/device.h"
#include "distributed/comm/process_grid.h"
#include "models/batch/batch_layout.h"
#include "models/layers/context.h"

namespace megatron {

/// By label.
struct LabelCounts {
  std::vector<std::int64_t> examples, right, chosen;  ///< that have it; of these told right; that were told to have it

  std::int64_t all_examples() const;
  std::int64_t all_right() const;
  /// all_right() / all_examples()
  double accuracy() const;
};

/// Hears of the logits of one sample: its number in the global batch, and one for each class.
using TakeLogits = std::function<void(std::int64_t sample, std::span<const float> logits)>;

class LabelScores {
 public:
  /// For at most `micro_batches` of these sizes. All references must outlive it.
  LabelScores(const ProcessGrid& grid, Device& device, const BatchSizes& sizes, std::int64_t classes,
              std::int64_t micro_batches);
  /// Memory of the scores on the device.
  static std::size_t bytes(const BatchSizes& sizes, std::int64_t classes, std::int64_t micro_batches);
  std::size_t bytes() const { return memory_.bytes(); }

  /// The results that a pass over this number of micro-batches sets.
  std::span<const TargetResults> results(std::size_t micro_batches) const {
    return std::span(results_).first(micro_batches);
  }
  void begin();
  /// After a pass: counts its samples with a label, on one of the ranks that have the scores. `take` hears there of
  /// all samples, also of those that only fill the batch.
  void add(std::span<const MicroBatch> micro_batches, const TakeLogits& take = nullptr);
  /// Counts of all ranks since begin(). Collective.
  LabelCounts sum() const;

 private:
  void add(const MicroBatch& micro_batch, ConstTensor scores, const TakeLogits& take);

  const ProcessGrid& grid_;
  Device& device_;
  std::int64_t classes_;
  Buffer memory_;  // f32 [micro-batches, labels, classes]
  std::vector<TargetResults> results_;
  std::vector<double> counts_;  // this rank's: examples, right and chosen by label
};

}  // namespace megatron

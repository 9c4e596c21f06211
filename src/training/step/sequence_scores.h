// SequenceScores: the scores of the targets of sequences, from passes of micro-batches through a model that its
// caller holds: the replica of a training run, or inference/decoding/scorer.h. Data ranks share the sequences and
// context ranks their rows; each target is scored once, so that the scores are the same on every layout, to rounding.
//
// Owns the memory of the results. Knows no weights, no executor and no files.
#pragma once

#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "backend/ops/device.h"
#include "data/evaluation_tasks/task.h"
#include "distributed/comm/process_grid.h"
#include "models/batch/batch_layout.h"
#include "models/layers/context.h"

namespace megatron {

/// Batches that passes are made of.
struct ScoringBatches {
  const BatchBuffer* buffer =
      nullptr;                     ///< for `micro_batches` of them; the passes write tokens, targets and position ids
  std::int64_t micro_batches = 1;  ///< at most, in a pass
  std::int64_t row_unit = 1;       ///< a rank's rows of a micro-batch are a multiple of it
  std::function<void(const BatchSizes&)> number_rows = {};  ///< writes the row numbers of these; where rows are cut

  /// Memory of the results on the device.
  static std::size_t result_bytes(const BatchSizes& sizes, std::int64_t micro_batches);
};

class SequenceScores {
 public:
  /// All references must outlive it, the buffer too.
  SequenceScores(const ProcessGrid& grid, Device& device, const ScoringBatches& batches);

  /// A forward pass that sets the results, on the ranks of the last stage.
  using Play = std::function<void(std::span<const MicroBatch> micro_batches, std::span<const TargetResults> results)>;
  /// The scores of all targets, in the order of the sequences and of their tokens, on every rank. Where other tokens
  /// have exactly the target's logit, it is right. `next` hears before each pass how many sequences are done, and says
  /// whether to continue, collectively; nothing when it did not. Collective.
  std::optional<std::vector<TargetScore>> score(std::span<const ScoredSequence> sequences, const Play& play,
                                                const std::function<bool(std::int64_t done)>& next);
  std::size_t bytes() const { return result_memory_.bytes(); }

 private:
  struct Pass;

  void place(std::span<const ScoredSequence> sequences, std::span<const std::size_t> order, Pass& pass);
  BatchSizes sizes_of(std::int64_t rows) const;
  void upload(std::span<const ScoredSequence> sequences, std::size_t k, const BatchSizes& sizes, Pass& pass);
  void read(std::span<const ScoredSequence> sequences, std::span<const std::int64_t> first_targets, const Pass& pass,
            std::span<double> scores) const;

  const ProcessGrid& grid_;
  Device& device_;
  const ScoringBatches batches_;
  const BatchLayout layout_;  // the part of the buffer's that sequences have
  Buffer result_memory_;      // f32 [micro-batches, results, cells]
};

}  // namespace megatron

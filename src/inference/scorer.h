// Scorer: how likely a model of a checkpoint finds the targets of sequences, on any tensor × pipeline × data ranks.
// Weights have no gradients and no optimizer; nothing is kept for a backward. The passes are train/sequence_scores.h's.
//
// Owns all memory, which plan_scoring() knows to the byte. Knows sequences of tokens, not where they come from.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "batch/batch_layout.h"
#include "checkpoint/checkpoint.h"
#include "evaluation/task.h"
#include "train/compute.h"
#include "train/replica.h"
#include "train/sequence_scores.h"

namespace megatron {

struct ScoringLayout {
  int ranks = 1;
  std::int64_t tensor = 1, pipeline = 1;  ///< the other ranks are data ranks
  std::int64_t micro_batch_size = 1;
  std::string precision = "fp32";  ///< of weights and arithmetic, or "checkpoint" for what the model was trained with
};

/// The configuration of a checkpoint's model for a scorer. Error(checkpoint) if it has none, Error(configuration) if
/// the model cannot be shared like that.
Config config_for_scoring(const CheckpointReader& checkpoint, const ScoringLayout& layout);

/// What the scorer of the rank at `at` takes for sequences of at most `longest` inputs.
MemoryUse plan_scoring(const Config& config, const GridShape& shape, const GridCoordinates& at, std::int64_t longest,
                       TransportKind kind);

class Scorer {
 public:
  /// As config_for_scoring() says, with a `run` whose device is chosen. Grid and backend must outlive the scorer.
  Scorer(const Config& config, const ProcessGrid& grid, Backend& backend, std::int64_t longest);

  void load(const CheckpointReader& checkpoint);
  /// The scores of all targets, in the order of the sequences and of their tokens, on every rank. Where other tokens
  /// have exactly the target's logit, it is right. `progress` hears how many sequences are done. Collective.
  /// Error(numerics) if a score is not a finite number.
  std::vector<TargetScore> score(std::span<const ScoredSequence> sequences,
                                 const std::function<void(std::int64_t done)>& progress = nullptr);
  /// What is held, and of arenas their high water: after a pass, what the plan says.
  MemoryUse used() const;

 private:
  const Config config_;
  const ProcessGrid& grid_;
  Backend& backend_;
  TensorRegion region_;
  ParameterStore store_;
  Stages chunks_;
  std::unique_ptr<PipelineExecutor> executor_;
  BatchBuffer batch_;
  std::optional<SequenceScores> scores_;  // after batch_, which it reads
  Buffer scratch_memory_;
  Arena scratch_;
  Tensor loss_sums_;  // a pass adds to them; they are not read
};

}  // namespace megatron

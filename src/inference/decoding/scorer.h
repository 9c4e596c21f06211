// Scorer: how likely a model of a checkpoint finds the targets of sequences, on any tensor × pipeline × data ranks.
// The passes are forward_passes.h's, the scores training/step/sequence_scores.h's.
//
// Owns all memory, which plan_scoring() knows to the byte. Knows sequences of tokens, not where they come from.
#pragma once

#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "data/evaluation_tasks/task.h"
#include "inference/decoding/forward_passes.h"
#include "training/step/sequence_scores.h"

namespace megatron {

/// config_for_passes() of a model that predicts next tokens; another is Error(configuration).
Config config_for_scoring(const CheckpointReader& checkpoint, const ScoringLayout& layout);

/// Memory that the scorer of the rank at `at` takes for sequences of at most `longest` inputs.
MemoryUse plan_scoring(const Config& config, const GridShape& shape, const GridCoordinates& at, std::int64_t longest,
                       TransportKind kind);

class Scorer {
 public:
  /// As config_for_scoring() says, with a `run` whose device is chosen. Grid and backend must outlive the scorer.
  Scorer(const Config& config, const ProcessGrid& grid, Backend& backend, std::int64_t longest);

  void load(const CheckpointReader& checkpoint) { passes_.load(checkpoint); }
  /// The scores of all targets, in the order of the sequences and of their tokens, on every rank. Where other tokens
  /// have exactly the target's logit, it is right. `progress` hears how many sequences are done. Collective.
  /// Error(numerics) if a score is not a finite number.
  std::vector<TargetScore> score(std::span<const ScoredSequence> sequences,
                                 const std::function<void(std::int64_t done)>& progress = nullptr);
  /// Memory that is held, for arenas their high water: after a pass, as much as the plan says.
  MemoryUse used() const;

 private:
  const Config config_;
  ForwardPasses passes_;
  BatchBuffer batch_;
  std::optional<SequenceScores> scores_;  // after batch_, which it reads
};

}  // namespace megatron

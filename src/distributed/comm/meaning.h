// TensorMeaning: what a tensor is over the ranks of a group. Every call that communicates says it, with a row of the
// table below; a call that says nothing, or what its verb cannot take, does not compile. Says, and does nothing: a
// check of collectives reads it (distributed/parallel/checked_collectives.h), where one is on.
#pragma once

#include "base/core/error.h"
#include "distributed/comm/group.h"

namespace megatron {

enum class Reduce { sum, maximum };

/// State of a tensor over the ranks of a group.
///
/// | verb                       | takes   | gives                |
/// | all_reduce                 | partial | replicated           |
/// | reduce_scatter             | partial | divided              |
/// | all_gather                 | divided | replicated           |
/// | all_to_all                 | divided | divided, another way |
/// | broadcast, send, receive   | own     | what the sender has  |
enum class Hold {
  replicated,  ///< each the same bits
  partial,     ///< each a share of a sum, or of a maximum
  divided,     ///< each another part
  own,         ///< each its own
  any          ///< anything: decisions, reports, measurements
};

/// Whether ranks can have equal shares or parts that are right: numbers of tokens, say.
enum class Equal { never, by_chance };

struct MeaningRow {
  const char* what;  ///< for errors
  Group group;
  Hold hold;
  Reduce reduce;
  Equal equal;
};

template <Hold kHold>
struct TensorMeaning : MeaningRow {
  constexpr TensorMeaning(const char* tensor, Group ranks, Reduce by = Reduce::sum, Equal shares = Equal::never)
      : MeaningRow{tensor, ranks, kHold, by, shares} {}
};

/// A meaning and the line that says it.
struct Statement {
  const MeaningRow* meaning;
  SourcePlace where;
};

/// One that a verb takes: of this kind, or any. Meanings become it where the verb is called.
template <Hold kHold>
struct Holding : Statement {
  constexpr Holding(const TensorMeaning<kHold>& row, SourcePlace at = SourcePlace::current()) : Statement{&row, at} {}
  constexpr Holding(const TensorMeaning<Hold::any>& row, SourcePlace at = SourcePlace::current())
      : Statement{&row, at} {}
};
/// One of any kind, where nothing is moved.
struct Said : Statement {
  template <Hold kHold>
  constexpr Said(const TensorMeaning<kHold>& row, SourcePlace at = SourcePlace::current()) : Statement{&row, at} {}
};

using Replicated = TensorMeaning<Hold::replicated>;
using Partial = TensorMeaning<Hold::partial>;
using Divided = TensorMeaning<Hold::divided>;
using Own = TensorMeaning<Hold::own>;
using Any = TensorMeaning<Hold::any>;

// ---- The table ------------------------------------------------------------------------------------------------------

// Layers. Of a layer's input and output tensor ranks have all rows, or with sequence parallelism a part each.
inline constexpr Replicated kStream{"rows that all tensor ranks have", Group::tensor};
inline constexpr Divided kSequenceRows{"rows of the sequence", Group::tensor};
inline constexpr Partial kOutputShares{"shares of a layer's output", Group::tensor};
inline constexpr Partial kInputGradientShares{"shares of the gradient of a layer's input", Group::tensor};
inline constexpr Partial kEmbeddingShares{"embeddings of the words that a rank has", Group::tensor};
inline constexpr Partial kFirstRows{"first rows of samples, 0 on all ranks but one", Group::tensor};
inline constexpr Partial kLogitMaxima{"maxima of the logits that a rank has", Group::tensor, Reduce::maximum};
inline constexpr Partial kExponentials{"sums of exponentials, target logits", Group::tensor};
inline constexpr Divided kLogitParts{"logits of the words that a rank has", Group::tensor};

// Experts.
inline constexpr Divided kTokensOfExperts{"rows by the rank of their expert", Group::expert};
inline constexpr Divided kRowsOfExpert{"rows of an expert", Group::tensor};
inline constexpr Partial kExpertShares{"shares of an expert's output", Group::tensor};
inline constexpr Partial kGateShares{"shares of the gradient of gates", Group::tensor};
inline constexpr Divided kOwnGates{"gradient of the gates of own rows", Group::tensor};
inline constexpr Partial kMostOfExpert{"tokens of an expert, the most of a tensor rank", Group::tensor,
                                       Reduce::maximum};
inline constexpr Partial kMostOfExpertRanks{"tokens of an expert, the most of a rank", Group::expert, Reduce::maximum};

// Losses and their counts. 64-bit floats: a few numbers each.
inline constexpr Partial kTargetCounts{"targets of a rank's samples", Group::control, Reduce::sum, Equal::by_chance};
inline constexpr Replicated kLossCounts{"counts that the loss is a mean over", Group::world};
inline constexpr Replicated kLossSums{"sums of losses", Group::tensor};
inline constexpr Replicated kRouteCounts{"choices of experts", Group::tensor};
inline constexpr Partial kLossesOfStages{"losses of a stage", Group::pipeline};
inline constexpr Partial kLossesOfCopies{"losses of a copy's samples", Group::copies};
inline constexpr Replicated kEvaluatedLosses{"losses of an evaluation", Group::world};
inline constexpr Partial kScores{"scores of a rank's samples", Group::world, Reduce::sum, Equal::by_chance};

// Gradients: over the copies all of them, then by their parameters' records.
inline constexpr Partial kGradients{"gradients of a copy's samples", Group::copies};
inline constexpr Partial kExpertGradients{"gradients of experts", Group::expert_copies};
inline constexpr Partial kPartialGradients{"gradients of parameters that tensor ranks each use a part of",
                                           Group::tensor};
inline constexpr Partial kSharedHeadGradients{"gradients of keys and values that tensor ranks share",
                                              Group::kv_replicas};
inline constexpr Partial kTiedGradients{"gradients of a parameter that stages share", Group::tie};
inline constexpr Replicated kSummedGradients{"gradients of all copies", Group::copies};
inline constexpr Replicated kSummedExpertGradients{"gradients of experts of all copies", Group::expert_copies};
inline constexpr Replicated kWholeGradients{"gradients that all tensor ranks have", Group::tensor};
inline constexpr Replicated kWholeHeadGradients{"gradients of shared keys and values, of all ranks",
                                                Group::kv_replicas};
inline constexpr Replicated kWholeTiedGradients{"gradients of a shared parameter, of all stages", Group::tie};

// The update.
inline constexpr Partial kModelSums{"squares and losses of a rank's part of the model", Group::model};
inline constexpr Partial kExpertSquares{"squares of a rank's experts", Group::expert};
inline constexpr Partial kCopySums{"squares and losses of a copy", Group::copies};
inline constexpr Replicated kVerdict{"norm and flags of an update", Group::world};
inline constexpr Divided kBucketDirections{"directions of a rank's part of a bucket", Group::copies};
inline constexpr Divided kExpertBucketDirections{"directions of a rank's part of experts", Group::expert_copies};
inline constexpr Divided kMatrixParts{"parts of matrices", Group::tensor, Reduce::sum, Equal::by_chance};
inline constexpr Divided kNewWeights{"a rank's part of new weights", Group::copies};
inline constexpr Divided kNewExpertWeights{"a rank's part of experts' new weights", Group::expert_copies};

// Between stages.
inline constexpr Own kStageOutput{"a stage's output", Group::pipeline};
inline constexpr Own kStageGradient{"the gradient of a stage's input", Group::pipeline};
inline constexpr Own kChosenTokens{"tokens that one rank has chosen", Group::model};

// Numbers that no model is computed from.
inline constexpr Any kDecision{"a decision", Group::any, Reduce::maximum};
inline constexpr Any kReport{"a report", Group::any};
inline constexpr Any kReportMaximum{"a maximum of a report", Group::any, Reduce::maximum};
/// Between a communicator and the one below it, which says nothing of its own; and for tests of these.
inline constexpr Any kPassedOn{"what was said above", Group::any};
inline constexpr Any kPassedOnMaximum{"what was said above", Group::any, Reduce::maximum};
constexpr const Any& passed_on(Reduce reduce) {
  return reduce == Reduce::sum ? kPassedOn : kPassedOnMaximum;
}

}  // namespace megatron

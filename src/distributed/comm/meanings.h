// The table of meanings: what every tensor that is communicated, or taken for granted, is over its group. The one place
// where that is written down.
#pragma once

#include "distributed/comm/meaning.h"

namespace megatron {

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

// Attention of sequences that context ranks divide.
inline constexpr Divided kKeysOfRows{"keys and values of a rank's rows", Group::context, Reduce::sum, Equal::by_chance};
inline constexpr Partial kKeyGradientShares{"gradients of keys and values by a rank's queries", Group::context};
inline constexpr Divided kRowsOfHeads{"rows of attention's heads, by the rank that has the row or the head",
                                      Group::context, Reduce::sum, Equal::by_chance};
inline constexpr Own kPassedKeys{"keys and values that go round", Group::context};
inline constexpr Own kPassedKeyGradients{"gradients of keys and values that go round", Group::context};

// Experts.
inline constexpr Divided kTokensOfExperts{"rows by the rank of their expert", Group::expert};
inline constexpr Divided kRowsOfExpert{"rows of an expert", Group::tensor};
inline constexpr Partial kExpertShares{"shares of an expert's output", Group::tensor};
inline constexpr Partial kGateShares{"shares of the gradient of gates", Group::tensor};
inline constexpr Divided kOwnGates{"gradient of the gates of own rows", Group::tensor};
inline constexpr Partial kMostOfExpert{"tokens of an expert, the most of a tensor rank", Group::tensor,
                                       Reduce::maximum};
inline constexpr Partial kMostOfExpertRanks{"tokens of an expert, the most of a rank", Group::expert, Reduce::maximum};

// Samples whose rows context ranks divide, and whose places in experts they share out.
inline constexpr Divided kChoicesOfRows{"experts that a rank's rows chose", Group::context, Reduce::sum,
                                        Equal::by_chance};
inline constexpr Divided kGatesOfRows{"gates of a rank's rows", Group::context, Reduce::sum, Equal::by_chance};
inline constexpr Divided kRowsOfPlaces{"rows of a rank, for the places of all", Group::context, Reduce::sum,
                                       Equal::by_chance};
inline constexpr Partial kPlaceShares{"what a rank's places add to rows", Group::context};
inline constexpr Partial kPlaceGateShares{"what a rank's places add to the gradient of gates", Group::context};

// Losses and their counts. 64-bit floats: a few numbers each.
inline constexpr Partial kTargetCounts{"targets of a rank's samples", Group::control, Reduce::sum, Equal::by_chance};
inline constexpr Replicated kLossCounts{"counts that the loss is a mean over", Group::world};
inline constexpr Replicated kLossSums{"sums of losses", Group::tensor};
inline constexpr Replicated kRouteCounts{"choices of experts", Group::tensor};
inline constexpr Partial kLossesOfStages{"losses of a stage", Group::pipeline};
inline constexpr Partial kLossesOfCopies{"losses of a copy's samples", Group::copies};
inline constexpr Replicated kEvaluatedLosses{"losses of an evaluation", Group::world};
inline constexpr Partial kScores{"scores of a rank's samples", Group::world, Reduce::sum, Equal::by_chance};

// Gradients: over the copies all of them, where these divide them first within a set and then over the sets; then by
// their parameters' records.
inline constexpr Partial kGradients{"gradients of a copy's samples", Group::copies};
inline constexpr Partial kExpertGradients{"gradients of experts", Group::expert_copies};
inline constexpr Partial kDividedGradients{"gradients of a copy's samples, to be divided", Group::shards};
inline constexpr Partial kDividedExpertGradients{"gradients of experts, to be divided", Group::expert_shards};
inline constexpr Partial kSumsOfSet{"a part of the gradients of a set of copies", Group::replicas};
inline constexpr Partial kPartialGradients{"gradients of parameters that tensor ranks each use a part of",
                                           Group::tensor};
inline constexpr Partial kSharedHeadGradients{"gradients of keys and values that tensor ranks share",
                                              Group::kv_replicas};
inline constexpr Partial kTiedGradients{"gradients of a parameter that stages share", Group::tie};
inline constexpr Replicated kSummedGradients{"gradients of all copies", Group::copies};
inline constexpr Replicated kSummedExpertGradients{"gradients of experts of all copies", Group::expert_copies};
inline constexpr Divided kPartOfSums{"a copy's part of the gradients of all", Group::shards, Reduce::sum,
                                     Equal::by_chance};
inline constexpr Divided kPartOfExpertSums{"a copy's part of the gradients of experts of all", Group::expert_shards,
                                           Reduce::sum, Equal::by_chance};
inline constexpr Replicated kPartOfAllSets{"a part of the gradients of all copies", Group::replicas};
inline constexpr Replicated kWholeGradients{"gradients that all tensor ranks have", Group::tensor};
inline constexpr Replicated kWholeHeadGradients{"gradients of shared keys and values, of all ranks",
                                                Group::kv_replicas};
inline constexpr Replicated kWholeTiedGradients{"gradients of a shared parameter, of all stages", Group::tie};

// The update.
inline constexpr Partial kModelSums{"squares and losses of a rank's part of the model", Group::model};
inline constexpr Partial kExpertSquares{"squares of a rank's experts", Group::expert};
inline constexpr Partial kCopySums{"squares and losses of a copy", Group::copies};
inline constexpr Replicated kVerdict{"norm and flags of an update", Group::world};
inline constexpr Divided kMatrixParts{"parts of matrices", Group::tensor, Reduce::sum, Equal::by_chance};
inline constexpr Divided kNewWeights{"a rank's part of new weights", Group::shards, Reduce::sum, Equal::by_chance};
inline constexpr Divided kNewExpertWeights{"a rank's part of experts' new weights", Group::expert_shards, Reduce::sum,
                                           Equal::by_chance};
inline constexpr Own kOwnersWeights{"new weights of the rank that updates them", Group::shards};
inline constexpr Own kOwnersExpertWeights{"new weights of experts of the rank that updates them", Group::expert_shards};

// Between stages.
inline constexpr Own kStageOutput{"a stage's output", Group::pipeline};
inline constexpr Own kStageGradient{"the gradient of a stage's input", Group::pipeline};
inline constexpr Own kChosenTokens{"tokens that one rank has chosen", Group::model};

}  // namespace megatron

// Arguments of the verbs of mixture-of-experts layers: the router scores the experts and chooses top_k for each row, a
// plan gives every choice a slot in buffers of fixed size or drops it, and rows are moved to their slots and back.
//
// Part of ops.h, whose conventions hold. Rows are n = s * b in [s, b] order. What belongs to the router is f32. Indices
// out of range (experts, entries, slots) stand for nothing: no verb reads or writes outside of its tensors.
#pragma once

#include <cstdint>

#include "backend/tensor/tensor.h"

namespace megatron {

/// Softmax over the experts, and the top_k of each row by score: the probability, plus choice_bias where there is one.
/// Of equal scores the lower expert comes first, and NaN after all others: the chosen are always distinct experts.
struct RouteForwardArgs {
  ConstTensor logits;        ///< [n, experts]
  ConstTensor choice_bias;   ///< [experts], optional: decides the choice alone, as in DeepSeek-V3
  Tensor probabilities;      ///< sets, [n, experts]
  Tensor chosen;             ///< sets, i32 [n, top_k]: experts, the best first
  Tensor gates;              ///< sets, [n, top_k]: their probabilities
  Tensor log_sums;           ///< sets, [n]: ln of the sum of exp(logit), of the z loss
  Tensor gaps;               ///< sets, [n], optional: last chosen score - best other one; infinity if all are chosen
  bool renormalize = false;  ///< gates are divided by their sum over the row, before anything is dropped
};

/// Where chosen rows lie: every expert has `capacity` places for each sample, in slots [parts, experts,
/// part_capacity(), b]. The places of an expert are cut into `parts` (tensor parallelism). Experts are in `groups`
/// equal ranges (expert parallelism); the first of every group come first, then the second ones, and so on.
struct ExpertSlots {
  std::int64_t experts = 0, capacity = 0;
  std::int64_t parts = 1, groups = 1;

  constexpr std::int64_t part_capacity() const { return (capacity + parts - 1) / parts; }
  constexpr std::int64_t count(std::int64_t samples) const { return parts * experts * part_capacity() * samples; }
  constexpr std::int64_t slot(std::int64_t expert, std::int64_t place, std::int64_t sample,
                              std::int64_t samples) const {
    const std::int64_t in_group = experts / groups, at = expert % in_group * groups + expert / in_group;
    return ((place / part_capacity() * experts + at) * part_capacity() + place % part_capacity()) * samples + sample;
  }
};

/// The order in which rows get an expert's places: the earlier rows of the sample first, or at random. At random the
/// row with the larger noise comes first, word 0 of philox4x32<7>({expert, position, 0, sample}, key); with equal noise
/// the earlier row.
struct PlaceOrder {
  bool random = false;            ///< false: nothing else is read
  std::uint64_t key = 0;          ///< random_key(seed, step, site)
  ConstTensor positions;          ///< i32 [s]: global position of each sequence row
  std::int64_t first_sample = 0;  ///< column b is sample first_sample + b of the global batch
};

/// Gives places 0, 1, ... of every expert and sample to the rows that chose it: all first choices, then all second
/// ones, and so on, each in the order that `order` says. Choices past the capacity are dropped. Without slots and
/// entries choices are counted, and the layout may have no places.
struct PlanRoutesArgs {
  ConstTensor chosen;  ///< i32 [s, b, top_k]: whole samples
  ExpertSlots layout;
  PlaceOrder order;
  Tensor slots;    ///< sets, i32 [s, b, top_k], optional: slot of each choice, -1: dropped
  Tensor entries;  ///< sets, i32 [layout.count(b)], optional: row * top_k + choice of what lies in a slot, -1: empty
  Tensor counts;   ///< sets, i32 [b, experts]: how often the expert was chosen, dropped choices included
};

/// balance += the sum over samples of experts · Σ_e (counts[b, e] / (sequence · top_k)) · (mean probability of e);
/// z += the sum over samples of the mean of log_sums². Both means are over `sequence` rows, of which those here add
/// their part.
struct RouteLossesArgs {
  ConstTensor probabilities;  ///< [s, b, experts]
  ConstTensor counts;         ///< i32 [b, experts], of whole samples; with balance
  ConstTensor log_sums;       ///< [n]; with z
  std::int64_t top_k = 1;
  std::int64_t sequence = 0;  ///< rows of a whole sample; 0: s
  Tensor balance;             ///< adds, f64 [1], optional
  Tensor z;                   ///< adds, f64 [1], optional
};

/// The gradient of the gates and of both losses, back through the softmax. Choices and counts are constants.
struct RouteBackwardArgs {
  ConstTensor probabilities, chosen;     ///< [s, b, experts], i32 [n, top_k]: of forward
  ConstTensor counts;                    ///< as in RouteLossesArgs; with balance_scale
  ConstTensor log_sums;                  ///< as in forward; with z_scale
  ConstTensor dgates;                    ///< [n, top_k]
  std::int64_t sequence = 0;             ///< as in RouteLossesArgs
  Tensor dlogits;                        ///< sets, [n, experts]
  bool renormalize = false;              ///< as in forward
  float balance_scale = 0, z_scale = 0;  ///< gradients of the two sums of RouteLossesArgs; 0: none
};

/// Adds up over calls what experts were asked for. All numbers are integers but for the gap, which is a minimum: the
/// order of the calls does not matter.
struct TallyRoutesArgs {
  ConstTensor counts;         ///< i32 [b, experts]: of plan_routes
  ConstTensor gaps;           ///< f32 [n]: of route_forward
  std::int64_t capacity = 0;  ///< an expert's places for each sample: choices past it are dropped
  Tensor choices;             ///< adds, f64 [experts + 1]: choices of each expert, and how many of all were dropped
  Tensor least_gap;           ///< sets, f64 [1]: the least of itself and the gaps, NaN aside
};

/// bias[e] += rate where fewer than the mean chose expert e, -= rate where more did (DeepSeek-V3's balance).
struct ShiftChoiceBiasArgs {
  ConstTensor choices;  ///< f64 [experts]: integers, as tally_routes adds them up
  float rate = 0;
  Tensor bias;  ///< adds, f32 [experts]
};

/// y[i] = gates[entries[i]] · x[entries[i] / top_k]; 0 in empty slots. With the gates it is combine_rows backward.
struct DispatchRowsArgs {
  ConstTensor x;        ///< [n, h]
  ConstTensor entries;  ///< i32 [m]: those of PlanRoutesArgs, or a range of them
  ConstTensor gates;    ///< f32 [n, top_k], optional: absent, 1
  std::int64_t top_k = 1;
  Tensor y;  ///< sets, [m, h]
};

/// y[row] = Σ_j gates[row, j] · x[slots[row, j] - first_slot] over the slots that are here, in order of j, in f32; with
/// `accumulate` that is added to y. Without gates it is dispatch_rows backward.
struct CombineRowsArgs {
  ConstTensor x;                ///< [m, h]: slots first_slot, first_slot + 1, ...
  ConstTensor slots;            ///< i32 [n, top_k], optional: absent, x are [n · top_k, h], the rows of all choices
  std::int64_t first_slot = 0;  ///< choices with other slots, and dropped ones, add nothing
  ConstTensor gates;            ///< f32 [n, top_k], optional: absent, 1
  Tensor y;                     ///< sets, or adds if accumulate, [n, h]
  bool accumulate = false;
};

/// dgates[row, j] = dy[row] · x[slots[row, j] - first_slot]; 0 where that slot is not here.
struct CombineGatesBackwardArgs {
  ConstTensor x, slots;  ///< as in CombineRowsArgs
  std::int64_t first_slot = 0;
  ConstTensor dy;  ///< [n, h]
  Tensor dgates;   ///< sets, f32 [n, top_k]
};

}  // namespace megatron

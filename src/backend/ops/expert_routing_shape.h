// Shared by the backends for the verbs of expert_routing.h: the checked extents and places of a call, which kernels
// take by value, and the order of preference. Reads no element.
#pragma once

#include <cstdint>
#include <limits>

#include "backend/ops/arguments.h"
#include "backend/ops/expert_routing.h"

namespace megatron {

/// An expert as a row prefers it: by score, then the lower one. NaN counts as the least score.
struct RankedExpert {
  float score;
  std::int32_t expert;

  static constexpr RankedExpert of(float score, std::int64_t expert) {
    return {score == score ? score : -std::numeric_limits<float>::infinity(), static_cast<std::int32_t>(expert)};
  }
  /// Before all experts, and after all.
  static constexpr RankedExpert first() { return {std::numeric_limits<float>::infinity(), -1}; }
  static constexpr RankedExpert last() {
    return {-std::numeric_limits<float>::infinity(), std::numeric_limits<std::int32_t>::max()};
  }
  constexpr bool before(const RankedExpert& other) const {
    return score > other.score || (score == other.score && expert < other.expert);
  }
};

/// Sums of gates below it count as this: without it, chosen experts of probability 0 (by choice_bias) would give NaN.
inline constexpr float kLeastGateSum = 1e-20f;

struct RoutedRows {
  std::int64_t rows, experts, top_k;

  /// Sizes of tensors [n, experts] and [n, top_k].
  RoutedRows(const char* verb, const ConstTensor& by_expert, const ConstTensor& by_choice)
      : rows(RowsOf(by_expert).rows), experts(RowsOf(by_expert).columns), top_k(RowsOf(by_choice).columns) {
    internal_check(top_k >= 1 && top_k <= experts && experts < INT32_MAX, verb, top_k, experts);
    internal_check(rows * top_k <= INT32_MAX, verb, rows, top_k);
  }
};

struct RouteForwardShape : RoutedRows {
  const float *logits, *choice_bias;
  float* probabilities;
  std::int32_t* chosen;
  float *gates, *log_sums, *gaps;
  bool renormalize;

  explicit RouteForwardShape(const RouteForwardArgs& args)
      : RoutedRows("route_forward", args.logits, args.chosen),
        logits(elements_of<float>("route_forward", args.logits, rows * experts)),
        choice_bias(optional_elements_of<float>("route_forward", args.choice_bias, experts)),
        probabilities(elements_of<float>("route_forward", args.probabilities, rows * experts)),
        chosen(elements_of<std::int32_t>("route_forward", args.chosen, rows * top_k)),
        gates(elements_of<float>("route_forward", args.gates, rows * top_k)),
        log_sums(elements_of<float>("route_forward", args.log_sums, rows)),
        gaps(optional_elements_of<float>("route_forward", args.gaps, rows)),
        renormalize(args.renormalize) {}

  /// An expert with this probability, as a row prefers it.
  constexpr RankedExpert ranked(float probability, std::int64_t expert) const {
    return RankedExpert::of(choice_bias == nullptr ? probability : probability + choice_bias[expert], expert);
  }
};

struct PlanRoutesShape {
  std::int64_t sequence, samples, top_k;
  ExpertSlots layout;
  const std::int32_t *chosen, *positions;  ///< positions or null: in order
  std::uint64_t key;
  std::int64_t first_sample;
  std::int32_t *slots, *entries;  ///< or null
  std::int32_t* counts;

  explicit PlanRoutesShape(const PlanRoutesArgs& args) : layout(args.layout) {
    internal_check(args.chosen.rank() == 3, "plan_routes: the chosen experts are [s, b, top_k]", args.chosen.shape());
    const bool places = !args.slots.empty() || !args.entries.empty();
    internal_check(layout.capacity >= (places ? 1 : 0) && layout.parts >= 1 && layout.groups >= 1,
                   "plan_routes: no places", layout.capacity, layout.parts, layout.groups);
    internal_check(layout.experts >= 1 && layout.experts % layout.groups == 0,
                   "plan_routes: experts do not divide into groups", layout.experts, layout.groups);
    sequence = args.chosen.dim(0);
    samples = args.chosen.dim(1);
    top_k = args.chosen.dim(2);
    const std::int64_t choices = sequence * samples * top_k, slot_count = layout.count(samples);
    internal_check(choices <= INT32_MAX && slot_count <= INT32_MAX, "plan_routes: 2^31 choices or slots", choices,
                   slot_count);
    chosen = elements_of<std::int32_t>("plan_routes", args.chosen, choices);
    positions = args.order.random ? elements_of<std::int32_t>("plan_routes", args.order.positions, sequence) : nullptr;
    key = args.order.key;
    first_sample = args.order.first_sample;
    slots = optional_elements_of<std::int32_t>("plan_routes", args.slots, choices);
    entries = optional_elements_of<std::int32_t>("plan_routes", args.entries, slot_count);
    counts = elements_of<std::int32_t>("plan_routes", args.counts, samples * layout.experts);
  }

  constexpr bool only_counts() const { return slots == nullptr && entries == nullptr; }
  constexpr std::int64_t entry(std::int64_t position, std::int64_t sample, std::int64_t choice) const {
    return (position * samples + sample) * top_k + choice;
  }
  constexpr bool is_expert(std::int32_t expert) const { return expert >= 0 && expert < layout.experts; }
  /// The slot of an expert's place for this sample; -1: past the capacity.
  constexpr std::int32_t slot(std::int32_t expert, std::int64_t place, std::int64_t sample) const {
    return place < layout.capacity ? static_cast<std::int32_t>(layout.slot(expert, place, sample, samples)) : -1;
  }
  /// The choice has this slot, or -1.
  constexpr void set_slot(std::int64_t entry, std::int32_t slot) const {
    if (slots != nullptr) slots[entry] = slot;
    if (entries != nullptr && slot >= 0) entries[slot] = static_cast<std::int32_t>(entry);
  }
};

/// Terms of both losses and of their gradients.
struct RouteTerms {
  std::int64_t rows, samples, experts;
  const float* probabilities;
  double balance_factor;  ///< multiplies Σ counts · probabilities
  double z_factor;        ///< multiplies Σ log_sums²

  RouteTerms(const char* verb, const ConstTensor& by_expert, std::int64_t whole_sequence, std::int64_t top_k) {
    internal_check(by_expert.rank() == 3 && top_k >= 1, verb, by_expert.shape(), top_k);
    const std::int64_t here = by_expert.dim(0), sequence = whole_sequence > 0 ? whole_sequence : here;
    samples = by_expert.dim(1);
    experts = by_expert.dim(2);
    rows = here * samples;
    probabilities = elements_of<float>(verb, by_expert, rows * experts);
    z_factor = rows == 0 ? 0 : 1 / static_cast<double>(sequence);
    balance_factor = static_cast<double>(experts) / static_cast<double>(top_k) * z_factor * z_factor;
  }
};

struct RouteLossesShape : RouteTerms {
  const std::int32_t* counts;  ///< or null
  const float* log_sums;       ///< or null
  double *balance, *z;         ///< null where those are

  explicit RouteLossesShape(const RouteLossesArgs& args)
      : RouteTerms("route_losses", args.probabilities, args.sequence, args.top_k),
        counts(args.balance ? elements_of<std::int32_t>("route_losses", args.counts, samples * experts) : nullptr),
        log_sums(args.z ? elements_of<float>("route_losses", args.log_sums, rows) : nullptr),
        balance(args.balance ? f64_scalar("route_losses", args.balance) : nullptr),
        z(args.z ? f64_scalar("route_losses", args.z) : nullptr) {}
};

struct RouteBackwardShape : RouteTerms {
  std::int64_t top_k;
  const std::int32_t *chosen, *counts;     ///< counts or null: no gradient of the balance
  const float *log_sums, *dgates;          ///< log_sums or null: no gradient of the z loss
  float *dlogits, balance_scale, z_scale;  ///< scales: factors of counts[e], and of log_sums
  bool renormalize;

  explicit RouteBackwardShape(const RouteBackwardArgs& args)
      : RouteTerms("route_backward", args.probabilities, args.sequence, RowsOf(args.chosen).columns),
        top_k(RoutedRows("route_backward", args.probabilities, args.chosen).top_k),
        chosen(elements_of<std::int32_t>("route_backward", args.chosen, rows * top_k)),
        counts(args.balance_scale != 0 ? elements_of<std::int32_t>("route_backward", args.counts, samples * experts)
                                       : nullptr),
        log_sums(args.z_scale != 0 ? elements_of<float>("route_backward", args.log_sums, rows) : nullptr),
        dgates(elements_of<float>("route_backward", args.dgates, rows * top_k)),
        dlogits(elements_of<float>("route_backward", args.dlogits, rows * experts)),
        balance_scale(static_cast<float>(static_cast<double>(args.balance_scale) * balance_factor)),
        z_scale(static_cast<float>(static_cast<double>(args.z_scale) * 2 * z_factor)),
        renormalize(args.renormalize) {}

  constexpr bool is_expert(std::int32_t expert) const { return expert >= 0 && expert < experts; }
};

struct TallyRoutesShape {
  std::int64_t samples, experts, rows, capacity;
  const std::int32_t* counts;
  const float* gaps;
  double *choices, *least_gap;

  explicit TallyRoutesShape(const TallyRoutesArgs& args)
      : samples(RowsOf(args.counts).rows),
        experts(RowsOf(args.counts).columns),
        rows(args.gaps.elements()),
        capacity(args.capacity),
        counts(elements_of<std::int32_t>("tally_routes", args.counts, samples * experts)),
        gaps(elements_of<float>("tally_routes", args.gaps, rows)),
        choices(elements_of<double>("tally_routes", args.choices, experts + 1)),
        least_gap(f64_scalar("tally_routes", args.least_gap)) {}

  constexpr std::int64_t dropped(std::int32_t count) const { return count > capacity ? count - capacity : 0; }
};

struct ShiftChoiceBiasShape {
  std::int64_t experts;
  const double* choices;
  float rate;
  float* bias;

  explicit ShiftChoiceBiasShape(const ShiftChoiceBiasArgs& args)
      : experts(args.bias.elements()),
        choices(elements_of<double>("shift_choice_bias", args.choices, experts)),
        rate(args.rate),
        bias(elements_of<float>("shift_choice_bias", args.bias, experts)) {}

  /// The shift of an expert's bias, where all experts together were chosen `sum` times: integers that a double holds
  /// exactly.
  constexpr float shift(std::int64_t expert, double sum) const {
    const double scaled = choices[expert] * static_cast<double>(experts);
    return scaled < sum ? rate : scaled > sum ? -rate : 0.0f;
  }
};

template <class T>
struct DispatchRowsShape {
  std::int64_t slots, rows, columns, top_k;
  const T* x;
  const std::int32_t* entries;
  const float* gates;  ///< or null
  T* y;

  explicit DispatchRowsShape(const DispatchRowsArgs& args)
      : slots(args.entries.elements()),
        rows(RowsOf(args.x).rows),
        columns(RowsOf(args.x).columns),
        top_k(args.top_k),
        x(elements_of<T>("dispatch_rows", args.x, rows * columns)),
        entries(elements_of<std::int32_t>("dispatch_rows", args.entries, slots)),
        gates(optional_elements_of<float>("dispatch_rows", args.gates, rows * top_k)),
        y(elements_of<T>("dispatch_rows", args.y, slots * columns)) {
    internal_check(top_k >= 1, "dispatch_rows: rows without choices", top_k);
  }

  /// -1: none.
  constexpr std::int64_t row_of(std::int32_t entry) const {
    return entry >= 0 && entry < rows * top_k ? entry / top_k : -1;
  }
};

/// The rows in slots that belong to each of the rows outside.
template <class T>
struct SlottedRows {
  std::int64_t rows, top_k, columns;
  std::int64_t first_slot, slots_here;
  const T* x;
  const std::int32_t* slots;  ///< or null: a choice's slot has its number

  SlottedRows(const char* verb, const ConstTensor& x_rows, const ConstTensor& slots_of_rows, std::int64_t first,
              const ConstTensor& outside)
      : rows(RowsOf(slots_of_rows.empty() ? outside : slots_of_rows).rows),
        top_k(RowsOf(slots_of_rows).columns),
        columns(RowsOf(x_rows).columns),
        first_slot(first),
        slots_here(RowsOf(x_rows).rows),
        x(elements_of<T>(verb, x_rows, slots_here * columns)),
        slots(optional_elements_of<std::int32_t>(verb, slots_of_rows, rows * top_k)) {
    if (slots != nullptr || rows == 0) return;
    internal_check(first_slot == 0 && slots_here % rows == 0, verb, first_slot, slots_here, rows);
    top_k = slots_here / rows;
  }

  /// The row of x that a choice has, or null.
  constexpr const T* row_of(std::int64_t choice) const {
    if (slots == nullptr) return x + choice * columns;
    const std::int64_t at = slots[choice] - first_slot;
    return slots[choice] >= 0 && at >= 0 && at < slots_here ? x + at * columns : nullptr;
  }
};

template <class T>
struct CombineRowsShape : SlottedRows<T> {
  const float* gates;  ///< or null
  T* y;
  bool accumulate;

  explicit CombineRowsShape(const CombineRowsArgs& args)
      : SlottedRows<T>("combine_rows", args.x, args.slots, args.first_slot, args.y),
        gates(optional_elements_of<float>("combine_rows", args.gates, this->rows * this->top_k)),
        y(elements_of<T>("combine_rows", args.y, this->rows * this->columns)),
        accumulate(args.accumulate) {}

  /// Whether the row changes: any of its choices is here, or it is set to zeros.
  constexpr bool changes(std::int64_t row) const {
    bool any = !accumulate;
    for (std::int64_t j = 0; j < this->top_k && !any; ++j) any = this->row_of(row * this->top_k + j) != nullptr;
    return any;
  }
};

template <class T>
struct CombineGatesBackwardShape : SlottedRows<T> {
  const T* dy;
  float* dgates;

  explicit CombineGatesBackwardShape(const CombineGatesBackwardArgs& args)
      : SlottedRows<T>("combine_gates_backward", args.x, args.slots, args.first_slot, args.dy),
        dy(elements_of<T>("combine_gates_backward", args.dy, this->rows * this->columns)),
        dgates(elements_of<float>("combine_gates_backward", args.dgates, this->rows * this->top_k)) {}
};

}  // namespace megatron

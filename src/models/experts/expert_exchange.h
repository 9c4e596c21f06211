// The way of rows through the experts of a layer: to the ranks that hold them, through them, and back (moe.h). What the
// experts compute is the caller's.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>

#include "models/layers/context.h"

namespace megatron {

/// One expert's part of a tensor whose rows lie by expert, as a matrix.
template <class AnyTensor>
AnyTensor of_expert(AnyTensor all, std::int64_t index, std::int64_t experts) {
  const std::int64_t columns = all.dim(all.rank() - 1), rows = all.elements() / columns / experts;
  return all.view({experts * rows, columns}).slice(0, index * rows, rows);
}

/// How many rows each expert here takes in all, through buffers of `places` for each. Of many experts neighbours share
/// a number, the largest of theirs: nothing is allocated in a step.
class ExpertRounds {
 public:
  explicit ExpertRounds(std::int64_t experts = 0, std::int64_t places = 1) : experts_(experts), places_(places) {}

  void raise(std::int64_t expert, std::int64_t rows) {
    rows_[place(expert)] = std::max(rows_[place(expert)], static_cast<std::int32_t>(rows));
  }
  /// How often its buffer is passed.
  std::int64_t of(std::int64_t expert) const { return (rows_[place(expert)] + places_ - 1) / places_; }
  std::int64_t most() const { return (*std::max_element(rows_.begin(), rows_.end()) + places_ - 1) / places_; }
  /// The first places of a round, in which all of its rows are: in eighths, so that products have few shapes, and more
  /// than kFewRows where a plan has played more, whose workspace has another size.
  std::int64_t filled(std::int64_t expert, std::int64_t round) const {
    const std::int64_t left = rows_[place(expert)] - round * places_, unit = (places_ + 7) / 8;
    const std::int64_t rounded = (left + unit - 1) / unit * unit;
    return std::min(places_, places_ > kFewRows ? std::max(rounded, kFewRows + 1) : rounded);
  }

 private:
  std::size_t place(std::int64_t expert) const {
    constexpr std::int64_t most = std::tuple_size_v<decltype(rows_)>;
    return static_cast<std::size_t>(experts_ <= most ? expert : expert * most / experts_);
  }

  std::int64_t experts_, places_;
  std::array<std::int32_t, 64> rows_{};
};

/// Rows by expert: of each of the `experts` here, with its fellows on the other expert ranks, in the order of these.
struct ExpertRows {
  std::int64_t experts = 0;
  ConstTensor sent;                      ///< this rank's rows for all experts; without expert ranks `inputs`
  Tensor inputs;                         ///< sets: the rows of all ranks for the experts here
  Tensor outputs;                        ///< sets: what experts made of `sent`; absent: nothing returns
  const ExpertRounds* rounds = nullptr;  ///< absent: all experts take part
  std::int64_t round = 0;                ///< experts with no more rounds than this are left out

  /// The next one from `index` on that takes part.
  std::int64_t next(std::int64_t index) const {
    while (index < experts && rounds != nullptr && rounds->of(index) <= round) ++index;
    return index;
  }
  /// The rows of an expert that the round fills, all of them this rank's (if they are several ranks', each fills its
  /// part).
  template <class AnyTensor>
  AnyTensor filled(AnyTensor of_one, std::int64_t index) const {
    return rounds == nullptr ? of_one : of_one.slice(0, 0, rounds->filled(index, round));
  }
};

/// Calls compute(expert, its inputs, its outputs) for each expert here; outputs are this tensor rank's shares.
/// Collective over the expert ranks and, where there are some, the tensor ranks: while one expert computes, the next
/// one's rows arrive and those of the one before return.
template <class Compute>
void through_experts(Context& context, Communicator& ranks, const ExpertRows& rows, const Compute& compute) {
  const std::int64_t experts = rows.experts;
  const auto made_here = [&](std::int64_t i) { return rows.outputs ? of_expert(rows.outputs, i, experts) : Tensor(); };
  if (ranks.size() == 1) {
    for (std::int64_t i = rows.next(0); i < experts; i = rows.next(i + 1)) {
      compute(i, rows.filled(of_expert(rows.inputs, i, experts), i),
              rows.outputs ? rows.filled(made_here(i), i) : Tensor());
    }
    return;
  }
  Communicator& tensor = context.region.communicator();
  const bool cut = tensor.size() > 1;
  const ArenaScope scope(context.scratch);
  const DType type = rows.inputs.dtype();
  const Shape one = of_expert(rows.inputs, 0, experts).shape(), part = {one[0] / tensor.size(), one[1]};
  std::array<Tensor, 2> received, made, shares;
  for (std::size_t i = 0; i < 2; ++i) {
    if (cut) received[i] = context.scratch.allocate("part of an expert's input", part, type);
    if (!rows.outputs) continue;
    made[i] = context.scratch.allocate("rows of an expert", one, type);
    if (cut) shares[i] = context.scratch.allocate("part of an expert's output", part, type);
  }
  const auto start = [&](std::int64_t i, std::size_t turn) {
    return ranks.start_all_to_all(of_expert(rows.sent, i, experts),
                                  cut ? received[turn] : of_expert(rows.inputs, i, experts), kTokensOfExperts);
  };
  std::size_t turn = 0;
  Pending arriving, returning;
  std::int64_t i = rows.next(0);
  if (i < experts) arriving = start(i, turn);
  while (i < experts) {
    const std::int64_t following = rows.next(i + 1);
    const Tensor input = of_expert(rows.inputs, i, experts);
    arriving.wait();
    if (cut) tensor.all_gather(received[turn], input, kRowsOfExpert);
    if (following < experts) arriving = start(following, 1 - turn);
    compute(i, input, made[turn]);
    if (rows.outputs) {
      if (cut) tensor.reduce_scatter(made[turn], shares[turn], kExpertShares);
      returning.wait();
      returning = ranks.start_all_to_all(cut ? shares[turn] : made[turn], made_here(i), kTokensOfExperts);
    }
    i = following;
    turn = 1 - turn;
  }
  returning.wait();
}

}  // namespace megatron

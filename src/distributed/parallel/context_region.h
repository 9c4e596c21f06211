// ContextRegion: the rows of sequences that context ranks divide, brought together, summed up, and exchanged for heads.
// The collectives of context parallelism; layers that look at other rows than their own call them, and nothing else
// does.
#pragma once

#include "backend/ops/ops.h"
#include "backend/tensor/memory.h"
#include "base/core/zig_zag.h"
#include "distributed/comm/meaning.h"
#include "distributed/comm/process_grid.h"

namespace megatron {

/// Rows [s, b, ...] of whole sequences here, in their order. This rank's own are two chunks of them (ZigZag).
class ContextRegion {
 public:
  /// The grid must outlive the region.
  explicit ContextRegion(const ProcessGrid& grid)
      : context_(grid.context()), cut_{grid.shape().context, grid.at().context} {}

  const ZigZag& cut() const { return cut_; }
  bool divided() const { return cut_.cuts(); }
  Communicator& communicator() const { return context_; }
  /// This rank's chunk i, 0 or 1, of whole sequences.
  Tensor chunk(Tensor whole, std::int64_t i) const { return nth_chunk(whole, cut_.chunk(i)); }

  /// Sets the chunks of all ranks in `whole`, in which this rank's own are set.
  void gather(Ops& ops, Arena& scratch, Tensor whole, const Holding<Hold::divided>& said) const;
  /// Sums up `whole` over the ranks, in their order: this rank's own chunks are sums then, and the others anything.
  void reduce_scatter(Ops& ops, Arena& scratch, Tensor whole, const Holding<Hold::partial>& said) const;

  /// Sets `whole` to the rows of all ranks, of which `own` are this rank's. Both are contiguous, of any dtype.
  void gather_rows(Ops& ops, Arena& scratch, ConstTensor own, Tensor whole, const Holding<Hold::divided>& said) const;
  /// Sets `own` to this rank's rows of the sum of `whole` over the ranks. Leaves anything in `whole`.
  void sum_rows(Ops& ops, Arena& scratch, Tensor whole, Tensor own, const Holding<Hold::partial>& said) const;

  /// Exchanges a share of heads of each rank's rows for all rows of this rank's share. `parts` [s, b, heads, d]: half i
  /// of it is of this rank's chunk i, rank by rank the heads of each. Sets `whole` [s, b, heads, d].
  void to_heads(Ops& ops, Arena& scratch, ConstTensor parts, Tensor whole) const;
  /// The same back: sets `parts`.
  void to_rows(Ops& ops, Arena& scratch, ConstTensor whole, Tensor parts) const;

 private:
  template <class T>
  T nth_chunk(T whole, std::int64_t number) const {
    const std::int64_t rows = exact_division(whole.dim(0), cut_.chunks(), "rows of a sequence in chunks");
    return T(whole.slice(0, number * rows, rows));
  }
  /// Chunks in the order of ranks of the second half of sequences, where they lie in the opposite one.
  Tensor allocate_turned(Arena& scratch, const Shape& whole, DType type) const;

  Communicator& context_;
  ZigZag cut_;
};

}  // namespace megatron

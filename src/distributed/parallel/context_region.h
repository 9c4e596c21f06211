// ContextRegion: the rows of sequences that context ranks divide, brought together and summed up. The two collectives
// of context parallelism; layers that look at other rows than their own call them, and nothing else does.
#pragma once

#include "backend/ops/ops.h"
#include "backend/tensor/memory.h"
#include "base/core/zig_zag.h"
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
  /// This rank's chunk i, 0 or 1, of whole sequences.
  Tensor chunk(Tensor whole, std::int64_t i) const { return nth_chunk(whole, cut_.chunk(i)); }

  /// Sets the chunks of all ranks in `whole`, in which this rank's own are set.
  void gather(Ops& ops, Arena& scratch, Tensor whole) const;
  /// Sums up `whole` over the ranks, in their order: this rank's own chunks are sums then, and the others anything.
  void reduce_scatter(Ops& ops, Arena& scratch, Tensor whole) const;

 private:
  Tensor nth_chunk(Tensor whole, std::int64_t number) const;
  /// Chunks in the order of ranks of the second half of sequences, where they lie in the opposite one.
  Tensor allocate_turned(Arena& scratch, Tensor whole) const;

  Communicator& context_;
  ZigZag cut_;
};

}  // namespace megatron

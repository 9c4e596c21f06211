#include "distributed/parallel/context_region.h"

#include "distributed/comm/meanings.h"

namespace megatron {

Tensor ContextRegion::allocate_turned(Arena& scratch, const Shape& whole, DType type) const {
  Shape half = whole;
  half[0] /= 2;
  return scratch.allocate("second half of sequences, by rank", half, type);
}

// The first half of a sequence has the ranks' first chunks in the ranks' order: it is gathered where it belongs.
void ContextRegion::gather(Ops& ops, Arena& scratch, Tensor whole, const Holding<Hold::divided>& said) const {
  const ArenaScope scope(scratch);
  const Tensor turned = allocate_turned(scratch, whole.shape(), whole.dtype());
  const std::int64_t half = turned.dim(0), rows = half / cut_.ranks;
  Pending first = context_.start_all_gather(chunk(whole, 0), whole.slice(0, 0, half), said);
  Pending second = context_.start_all_gather(chunk(whole, 1), turned, said);
  first.wait();
  second.wait();
  for (int rank = 0; rank < cut_.ranks; ++rank) {
    if (rank == cut_.rank) continue;
    ops.copy(turned.slice(0, rank * rows, rows), nth_chunk(whole, ZigZag{cut_.ranks, rank}.chunk(1)));
  }
}

void ContextRegion::reduce_scatter(Ops& ops, Arena& scratch, Tensor whole, const Holding<Hold::partial>& said) const {
  const ArenaScope scope(scratch);
  const Tensor turned = allocate_turned(scratch, whole.shape(), whole.dtype());
  const std::int64_t half = turned.dim(0), rows = half / cut_.ranks;
  Pending first = context_.start_reduce_scatter(whole.slice(0, 0, half), chunk(whole, 0), said);
  for (int rank = 0; rank < cut_.ranks; ++rank) {
    ops.copy(nth_chunk(whole, ZigZag{cut_.ranks, rank}.chunk(1)), turned.slice(0, rank * rows, rows));
  }
  Pending second = context_.start_reduce_scatter(turned, chunk(whole, 1), said);
  first.wait();
  second.wait();
}

void ContextRegion::gather_rows(Ops& ops, Arena& scratch, ConstTensor own, Tensor whole,
                                const Holding<Hold::divided>& said) const {
  const std::int64_t rows = own.dim(0) / 2;
  for (std::int64_t i = 0; i < 2; ++i) ops.copy(own.slice(0, i * rows, rows), chunk(whole, i));
  gather(ops, scratch, whole, said);
}

void ContextRegion::sum_rows(Ops& ops, Arena& scratch, Tensor whole, Tensor own,
                             const Holding<Hold::partial>& said) const {
  reduce_scatter(ops, scratch, whole, said);
  const std::int64_t rows = own.dim(0) / 2;
  for (std::int64_t i = 0; i < 2; ++i) ops.copy(chunk(whole, i), own.slice(0, i * rows, rows));
}

void ContextRegion::to_heads(Ops& ops, Arena& scratch, ConstTensor parts, Tensor whole) const {
  const ArenaScope scope(scratch);
  const Tensor turned = allocate_turned(scratch, whole.shape(), whole.dtype());
  const std::int64_t half = turned.dim(0), rows = half / cut_.ranks;
  Pending first = context_.start_all_to_all(parts.slice(0, 0, half), whole.slice(0, 0, half), kRowsOfHeads);
  Pending second = context_.start_all_to_all(parts.slice(0, half, half), turned, kRowsOfHeads);
  first.wait();
  second.wait();
  for (int rank = 0; rank < cut_.ranks; ++rank) {
    ops.copy(turned.slice(0, rank * rows, rows), nth_chunk(whole, ZigZag{cut_.ranks, rank}.chunk(1)));
  }
}

void ContextRegion::to_rows(Ops& ops, Arena& scratch, ConstTensor whole, Tensor parts) const {
  const ArenaScope scope(scratch);
  const Tensor turned = allocate_turned(scratch, whole.shape(), whole.dtype());
  const std::int64_t half = turned.dim(0), rows = half / cut_.ranks;
  Pending first = context_.start_all_to_all(whole.slice(0, 0, half), parts.slice(0, 0, half), kRowsOfHeads);
  for (int rank = 0; rank < cut_.ranks; ++rank) {
    ops.copy(nth_chunk(whole, ZigZag{cut_.ranks, rank}.chunk(1)), turned.slice(0, rank * rows, rows));
  }
  Pending second = context_.start_all_to_all(turned, parts.slice(0, half, half), kRowsOfHeads);
  first.wait();
  second.wait();
}

}  // namespace megatron

// AttentionChunks: one rank's call of attention over rows that context ranks divide, cut into its two chunks.
#pragma once

#include "models/layers/context.h"

namespace megatron {

/// Keys and values, or their gradients, side by side: [rows, b, 2 key heads, d].
struct KeysAndValues {
  Tensor all;

  KeysAndValues() = default;
  explicit KeysAndValues(Tensor tensor) : all(tensor) {}
  KeysAndValues(Arena& scratch, const char* what, const ConstTensor& like, std::int64_t rows)
      : KeysAndValues(scratch, what, like, rows, like.dtype()) {}
  KeysAndValues(Arena& scratch, const char* what, const ConstTensor& like, std::int64_t rows, DType type)
      : all(scratch.allocate(what, {rows, like.dim(1), 2 * like.dim(2), like.dim(3)}, type)) {}
  KeysAndValues rows(std::int64_t first, std::int64_t count) const { return KeysAndValues(all.slice(0, first, count)); }
  Tensor keys() const { return all.slice(2, 0, all.dim(2) / 2); }
  Tensor values() const { return all.slice(2, all.dim(2) / 2, all.dim(2) / 2); }
};

class AttentionChunks {
 public:
  AttentionChunks(const Context& context, const ConstTensor& q)
      : region_(*context.context_region), chunk_starts_(context.rows().chunk_starts), rows_(q.dim(0) / 2) {
    internal_check(static_cast<bool>(chunk_starts_), "divided rows without the places of their chunks");
  }

  const ContextRegion& region() const { return region_; }
  std::int64_t rows() const { return rows_; }  ///< a chunk's
  std::int64_t sequence() const { return rows_ * region_.cut().chunks(); }
  /// Gives the rows of chunk i, 0 or 1.
  template <class T>
  T chunk(T rows, std::int64_t i) const {
    return T(rows.slice(0, i * rows_, rows_));
  }
  /// A chunk's part of [b, heads, s] that lies chunk by chunk: [b, heads, s/2].
  template <class T>
  T chunk_by_heads(T x, std::int64_t i) const {
    const Shape shape = {x.dim(0), x.dim(1), rows_};
    return T(x.view({2 * shape.elements()}).slice(0, i * shape.elements(), shape.elements()).view(shape));
  }
  AttentionMask mask(AttentionMask mask, std::int64_t i) const {
    const std::int64_t b = chunk_starts_.dim(1);
    mask.query_offsets = chunk_starts_.slice(0, i, 1).view({b});
    if (mask.document_starts) mask.document_starts = mask.document_starts.slice(0, i, 1).view({b, rows_});
    return mask;
  }
  Dropout dropout(Dropout dropout, std::int64_t i) const {
    if (dropout.positions) dropout.positions = chunk(dropout.positions, i);
    return dropout;
  }

 private:
  const ContextRegion& region_;
  ConstTensor chunk_starts_;
  std::int64_t rows_;
};

/// Copies [rows, b, heads, d], strided.
inline void copy_rows(Ops& ops, ConstTensor from, Tensor to) {
  ops.append_rows({.x = from, .offsets = {}, .y = to});
}

}  // namespace megatron

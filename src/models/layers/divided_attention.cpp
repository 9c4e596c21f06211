#include "models/layers/divided_attention.h"

namespace megatron {

namespace {

/// Keys and values, or their gradients, of whole sequences side by side: [s, b, key heads, d] each.
struct WholeKeys {
  Tensor all;  ///< [s, b, 2 key heads, d]

  WholeKeys(Arena& scratch, const char* what, const ConstTensor& like, std::int64_t rows)
      : all(scratch.allocate(what, {rows, like.dim(1), 2 * like.dim(2), like.dim(3)}, like.dtype())) {}
  Tensor keys(std::int64_t rows) const { return all.slice(0, 0, rows).slice(2, 0, all.dim(2) / 2); }
  Tensor values(std::int64_t rows) const { return all.slice(0, 0, rows).slice(2, all.dim(2) / 2, all.dim(2) / 2); }
};

/// One rank's call, cut into its chunks.
class Division {
 public:
  Division(const Context& context, const ConstTensor& q)
      : region_(*context.context_region), chunk_starts_(context.rows().chunk_starts), rows_(q.dim(0) / 2) {
    internal_check(static_cast<bool>(chunk_starts_), "divided rows without the places of their chunks");
  }

  std::int64_t sequence() const { return rows_ * region_.cut().chunks(); }
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
  /// Number of the first keys of a sequence among which are all that a chunk sees.
  std::int64_t keys_seen(const AttentionMask& mask, std::int64_t i) const {
    const bool bounded = mask.causal || mask.window > 0;
    return bounded ? (region_.cut().chunk(i) + 1) * rows_ : sequence();
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

  WholeKeys gather(Context& context, const ConstTensor& k, const ConstTensor& v) const {
    WholeKeys whole(context.scratch, "keys and values of all context ranks", k, sequence());
    for (std::int64_t i = 0; i < 2; ++i) {
      const Tensor own = region_.chunk(whole.all, i);
      context.ops.append_rows({.x = chunk(k, i), .offsets = {}, .y = own.slice(2, 0, k.dim(2))});
      context.ops.append_rows({.x = chunk(v, i), .offsets = {}, .y = own.slice(2, k.dim(2), v.dim(2))});
    }
    region_.gather(context.ops, context.scratch, whole.all);
    return whole;
  }
  void reduce_scatter(Context& context, const WholeKeys& gradients, const Tensor& dk, const Tensor& dv) const {
    region_.reduce_scatter(context.ops, context.scratch, gradients.all);
    for (std::int64_t i = 0; i < 2; ++i) {
      const Tensor own = region_.chunk(gradients.all, i);
      context.ops.append_rows({.x = own.slice(2, 0, dk.dim(2)), .offsets = {}, .y = chunk(dk, i)});
      context.ops.append_rows({.x = own.slice(2, dk.dim(2), dv.dim(2)), .offsets = {}, .y = chunk(dv, i)});
    }
  }

 private:
  const ContextRegion& region_;
  ConstTensor chunk_starts_;
  std::int64_t rows_;  // in a chunk
};

void attend_chunk(Context& context, const AttentionForwardArgs& args, const Division& division, const WholeKeys& whole,
                  std::int64_t i) {
  const std::int64_t seen = division.keys_seen(args.mask, i);
  context.ops.attention_forward({.q = division.chunk(args.q, i),
                                 .k = whole.keys(seen),
                                 .v = whole.values(seen),
                                 .out = division.chunk(args.out, i),
                                 .log_sum_exp = division.chunk_by_heads(args.log_sum_exp, i),
                                 .scale = args.scale,
                                 .mask = division.mask(args.mask, i),
                                 .dropout = division.dropout(args.dropout, i)});
}

void attend_chunk_back(Context& context, const AttentionBackwardArgs& args, const Division& division,
                       const WholeKeys& whole, const WholeKeys& gradients, std::int64_t i) {
  const std::int64_t seen = division.keys_seen(args.mask, i);
  context.ops.attention_backward({.dout = division.chunk(args.dout, i),
                                  .q = division.chunk(args.q, i),
                                  .k = whole.keys(seen),
                                  .v = whole.values(seen),
                                  .out = division.chunk(args.out, i),
                                  .log_sum_exp = division.chunk_by_heads(args.log_sum_exp, i),
                                  .dq = division.chunk(args.dq, i),
                                  .dk = gradients.keys(seen),
                                  .dv = gradients.values(seen),
                                  .scale = args.scale,
                                  .mask = division.mask(args.mask, i),
                                  .dropout = division.dropout(args.dropout, i),
                                  .ddistance_bias = args.ddistance_bias});
}

bool divided(const Context& context) {
  return context.context_region != nullptr && context.context_region->divided();
}

}  // namespace

void attend(Context& context, const AttentionForwardArgs& args) {
  if (!divided(context)) return context.ops.attention_forward(args);
  const ArenaScope scope(context.scratch);
  const Division division(context, args.q);
  const WholeKeys whole = division.gather(context, args.k, args.v);
  for (std::int64_t i = 0; i < 2; ++i) attend_chunk(context, args, division, whole, i);
}

// The second chunk sees all that the first does: what the first one's queries add is added there.
void attend_back(Context& context, const AttentionBackwardArgs& args) {
  if (!divided(context)) return context.ops.attention_backward(args);
  const ArenaScope scope(context.scratch);
  const Division division(context, args.q);
  const WholeKeys whole = division.gather(context, args.k, args.v);
  const std::int64_t s = division.sequence(), first_seen = division.keys_seen(args.mask, 0),
                     second_seen = division.keys_seen(args.mask, 1);
  const WholeKeys gradients(context.scratch, "gradient of keys and values", args.k, s);
  {
    const ArenaScope of_first(context.scratch);
    // As much memory on every rank: first chunks are in the first half of sequences.
    const WholeKeys first(context.scratch, "gradient of keys, of the first chunk", args.k, first_seen < s ? s / 2 : s);
    attend_chunk_back(context, args, division, whole, first, 0);
    attend_chunk_back(context, args, division, whole, gradients, 1);
    if (second_seen < s) context.ops.fill(gradients.all.slice(0, second_seen, s - second_seen), 0);
    context.ops.add(first.all.slice(0, 0, first_seen), gradients.all.slice(0, 0, first_seen));
  }
  division.reduce_scatter(context, gradients, args.dk, args.dv);
}

}  // namespace megatron

// Attention of context ranks that exchange rows for heads (Jacobs et al. 2023, DeepSpeed-Ulysses): an all-to-all gives
// each rank all rows of its share of the heads, and another one gives the output back. In between attention is one
// rank's, to the bit.
//
// Where there are fewer groups of keys and values than ranks, neighbours have copies of one, and the gradients that
// come of them are summed in f32.
#include <algorithm>
#include <initializer_list>

#include "models/attention/attention_chunks.h"
#include "models/attention/attention_exchange.h"

namespace megatron {

namespace {

/// Heads by rank, and the tensors [s, b, heads, d] that have them: queries, keys and values side by side.
class HeadShares {
 public:
  HeadShares(const Context& context, const ConstTensor& q, const ConstTensor& k)
      : region_(*context.context_region),
        ranks_(region_.cut().ranks),
        rows_(q.dim(0) / 2),
        queries_(exact_division(q.dim(2), ranks_, "heads over context ranks")),
        keys_(heads_of(k, 0).count) {}

  std::int64_t sequence() const { return 2 * rows_ * ranks_; }
  std::int64_t queries() const { return queries_; }  ///< heads of this rank
  std::int64_t keys() const { return keys_; }
  std::int64_t first_query() const { return region_.cut().rank * queries_; }

  /// Places for all rows of `heads` heads.
  Tensor allocate(Arena& arena, const char* what, const ConstTensor& like, std::int64_t heads) const {
    return arena.allocate(what, {sequence(), like.dim(1), heads, like.dim(3)}, like.dtype());
  }
  Tensor queries_of(Tensor whole) const { return whole.slice(2, 0, queries_); }
  Tensor keys_of(Tensor whole) const { return whole.slice(2, queries_, keys_); }
  Tensor values_of(Tensor whole) const { return whole.slice(2, queries_ + keys_, keys_); }

  /// Sets this rank's heads of the tensors in `whole`, side by side, in all rows.
  void to_heads(Context& context, std::initializer_list<ConstTensor> tensors, Tensor whole) const {
    const ArenaScope scope(context.scratch);
    const Tensor parts = context.scratch.allocate("rows by rank of their head", whole.shape(), whole.dtype());
    for (std::int64_t i = 0; i < 2; ++i) {
      for (std::int64_t rank = 0; rank < ranks_; ++rank) {
        std::int64_t place = 0;
        for (const ConstTensor& tensor : tensors) {
          const Heads heads = heads_of(tensor, rank);
          copy_rows(context.ops, tensor.slice(0, i * rows_, rows_).slice(2, heads.first, heads.count),
                    part(parts, i, rank).slice(2, place, heads.count));
          place += heads.count;
        }
      }
    }
    region_.to_heads(context.ops, context.scratch, parts, whole);
  }

  /// Sets this rank's rows of the tensors by those of all rows, side by side in `whole`. Copies of one head are summed.
  void to_rows(Context& context, ConstTensor whole, std::initializer_list<Tensor> tensors) const {
    const ArenaScope scope(context.scratch);
    const Tensor parts = context.scratch.allocate("rows by rank of their head", whole.shape(), whole.dtype());
    region_.to_rows(context.ops, context.scratch, whole, parts);
    for (std::int64_t i = 0; i < 2; ++i) {
      std::int64_t place = 0;
      for (const Tensor& tensor : tensors) {
        const std::int64_t count = heads_of(tensor, 0).count, copies = ranks_ * count / tensor.dim(2);
        for (std::int64_t rank = 0; rank < ranks_; rank += copies) {
          const Tensor to = tensor.slice(0, i * rows_, rows_).slice(2, heads_of(tensor, rank).first, count);
          const auto from = [&](std::int64_t copy) { return part(parts, i, rank + copy).slice(2, place, count); };
          copies == 1 ? copy_rows(context.ops, from(0), to) : sum_copies(context, copies, from, to);
        }
        place += count;
      }
    }
  }

 private:
  struct Heads {
    std::int64_t first, count;
  };
  /// The heads of a tensor that a rank has: a share of them, or one that others have too.
  Heads heads_of(const ConstTensor& tensor, std::int64_t rank) const {
    const std::int64_t all = tensor.dim(2);
    return {rank * all / ranks_, std::max<std::int64_t>(1, all / ranks_)};
  }
  Tensor part(Tensor parts, std::int64_t i, std::int64_t rank) const {
    return parts.slice(0, (i * ranks_ + rank) * rows_, rows_);
  }

  template <class From>
  static void sum_copies(Context& context, std::int64_t copies, const From& from, Tensor to) {
    const ArenaScope scope(context.scratch);
    const Tensor one = context.scratch.allocate("gradient of a copy of keys", to.shape(), to.dtype());
    const Tensor wide = context.scratch.allocate("the same in f32", to.shape(), DType::f32);
    const Tensor sum = context.scratch.allocate("sum over copies of keys", to.shape(), DType::f32);
    for (std::int64_t copy = 0; copy < copies; ++copy) {
      copy_rows(context.ops, from(copy), one);
      context.ops.copy(one, copy == 0 ? sum : wide);
      if (copy > 0) context.ops.add(wide, sum);
    }
    context.ops.copy(sum, one);
    copy_rows(context.ops, one, to);
  }

  const ContextRegion& region_;
  std::int64_t ranks_, rows_, queries_, keys_;  // rows: of a chunk
};

/// This rank's heads of whole sequences.
AttentionMask mask_of(const HeadShares& shares, AttentionMask mask) {
  if (mask.slopes) mask.slopes = mask.slopes.slice(0, shares.first_query(), shares.queries());
  if (mask.distance_bias) mask.distance_bias = mask.distance_bias.slice(0, shares.first_query(), shares.queries());
  return mask;
}
Dropout dropout_of(const Context& context, const HeadShares& shares, Dropout dropout) {
  dropout.positions = context.rows().whole_positions;
  dropout.first_head += shares.first_query();
  return dropout;
}
template <class T>
T log_sum_exp_of(const HeadShares& shares, T log_sum_exp) {
  return T(log_sum_exp.view({log_sum_exp.dim(0), shares.queries(), shares.sequence()}));
}

}  // namespace

void ulysses_attention::forward(Context& context, const AttentionForwardArgs& args, SavedExchange& saved) {
  const HeadShares shares(context, args.q, args.k);
  const Shape whole = {shares.sequence(), args.q.dim(1), shares.queries() + 2 * shares.keys(), args.q.dim(3)};
  // Received rows overwrite the memory that is given only after all of it has been read.
  const bool fits = saved.given && saved.given.elements() == whole.elements();
  saved.inputs =
      fits ? saved.given.view(whole) : context.saved->allocate("query, key, value of own heads", whole, args.q.dtype());
  saved.out = shares.allocate(*context.saved, "attention output of own heads", args.q, shares.queries());
  shares.to_heads(context, {args.q, args.k, args.v}, saved.inputs);
  context.ops.attention_forward({.q = shares.queries_of(saved.inputs),
                                 .k = shares.keys_of(saved.inputs),
                                 .v = shares.values_of(saved.inputs),
                                 .out = saved.out,
                                 .log_sum_exp = log_sum_exp_of(shares, args.log_sum_exp),
                                 .scale = args.scale,
                                 .mask = mask_of(shares, args.mask),
                                 .dropout = dropout_of(context, shares, args.dropout)});
  shares.to_rows(context, saved.out, {args.out});
}

void ulysses_attention::backward(Context& context, const AttentionBackwardArgs& args, const SavedExchange& saved) {
  const ArenaScope scope(context.scratch);
  const HeadShares shares(context, args.q, args.k);
  const Tensor dout = shares.allocate(context.scratch, "output gradient of own heads", args.q, shares.queries());
  const Tensor gradient = shares.allocate(context.scratch, "query, key, value gradient of own heads", args.q,
                                          shares.queries() + 2 * shares.keys());
  shares.to_heads(context, {args.dout}, dout);
  Tensor ddistance_bias = args.ddistance_bias;
  if (ddistance_bias) ddistance_bias = ddistance_bias.slice(0, shares.first_query(), shares.queries());
  context.ops.attention_backward({.dout = dout,
                                  .q = shares.queries_of(saved.inputs),
                                  .k = shares.keys_of(saved.inputs),
                                  .v = shares.values_of(saved.inputs),
                                  .out = saved.out,
                                  .log_sum_exp = log_sum_exp_of(shares, args.log_sum_exp),
                                  .dq = shares.queries_of(gradient),
                                  .dk = shares.keys_of(gradient),
                                  .dv = shares.values_of(gradient),
                                  .scale = args.scale,
                                  .mask = mask_of(shares, args.mask),
                                  .dropout = dropout_of(context, shares, args.dropout),
                                  .ddistance_bias = ddistance_bias});
  shares.to_rows(context, gradient, {args.dq, args.dk, args.dv});
}

}  // namespace megatron

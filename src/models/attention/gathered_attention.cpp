// Attention of context ranks by gathered keys: this rank's queries, two chunks of them, to the keys of all. Keys and
// values are gathered, in the forward and again in the backward, and their gradients reduce-scattered.
//
// Every query meets the keys in the order of the sequence, by the operations that one rank would run: what comes out is
// the same to the bit where a backend's blocks of queries are no longer than a chunk.
#include "models/attention/attention_chunks.h"
#include "models/attention/attention_exchange.h"

namespace megatron {

namespace {

/// Number of the first keys of a sequence among which are all that a chunk sees.
std::int64_t keys_seen(const AttentionChunks& chunks, const AttentionMask& mask, std::int64_t i) {
  const bool bounded = mask.causal || mask.window > 0;
  return bounded ? (chunks.region().cut().chunk(i) + 1) * chunks.rows() : chunks.sequence();
}

KeysAndValues gather(Context& context, const AttentionChunks& chunks, const ConstTensor& k, const ConstTensor& v) {
  const KeysAndValues whole(context.scratch, "keys and values of all context ranks", k, chunks.sequence());
  for (std::int64_t i = 0; i < 2; ++i) {
    const KeysAndValues own(chunks.region().chunk(whole.all, i));
    copy_rows(context.ops, chunks.chunk(k, i), own.keys());
    copy_rows(context.ops, chunks.chunk(v, i), own.values());
  }
  chunks.region().gather(context.ops, context.scratch, whole.all, kKeysOfRows);
  return whole;
}

void reduce_scatter(Context& context, const AttentionChunks& chunks, const KeysAndValues& gradients, const Tensor& dk,
                    const Tensor& dv) {
  chunks.region().reduce_scatter(context.ops, context.scratch, gradients.all, kKeyGradientShares);
  for (std::int64_t i = 0; i < 2; ++i) {
    const KeysAndValues own(chunks.region().chunk(gradients.all, i));
    copy_rows(context.ops, own.keys(), chunks.chunk(dk, i));
    copy_rows(context.ops, own.values(), chunks.chunk(dv, i));
  }
}

void attend_chunk(Context& context, const AttentionForwardArgs& args, const AttentionChunks& chunks,
                  const KeysAndValues& whole, std::int64_t i) {
  const KeysAndValues seen = whole.rows(0, keys_seen(chunks, args.mask, i));
  context.ops.attention_forward({.q = chunks.chunk(args.q, i),
                                 .k = seen.keys(),
                                 .v = seen.values(),
                                 .out = chunks.chunk(args.out, i),
                                 .log_sum_exp = chunks.chunk_by_heads(args.log_sum_exp, i),
                                 .scale = args.scale,
                                 .mask = chunks.mask(args.mask, i),
                                 .dropout = chunks.dropout(args.dropout, i)});
}

void attend_chunk_back(Context& context, const AttentionBackwardArgs& args, const AttentionChunks& chunks,
                       const KeysAndValues& whole, const KeysAndValues& gradients, std::int64_t i) {
  const std::int64_t count = keys_seen(chunks, args.mask, i);
  const KeysAndValues seen = whole.rows(0, count), gradient = gradients.rows(0, count);
  context.ops.attention_backward({.dout = chunks.chunk(args.dout, i),
                                  .q = chunks.chunk(args.q, i),
                                  .k = seen.keys(),
                                  .v = seen.values(),
                                  .out = chunks.chunk(args.out, i),
                                  .log_sum_exp = chunks.chunk_by_heads(args.log_sum_exp, i),
                                  .dq = chunks.chunk(args.dq, i),
                                  .dk = gradient.keys(),
                                  .dv = gradient.values(),
                                  .scale = args.scale,
                                  .mask = chunks.mask(args.mask, i),
                                  .dropout = chunks.dropout(args.dropout, i),
                                  .ddistance_bias = args.ddistance_bias});
}

}  // namespace

void gathered_attention::forward(Context& context, const AttentionForwardArgs& args, SavedExchange& /*saved*/) {
  const ArenaScope scope(context.scratch);
  const AttentionChunks chunks(context, args.q);
  const KeysAndValues whole = gather(context, chunks, args.k, args.v);
  for (std::int64_t i = 0; i < 2; ++i) attend_chunk(context, args, chunks, whole, i);
}

// The second chunk sees all that the first does: what the first one's queries add is added there.
void gathered_attention::backward(Context& context, const AttentionBackwardArgs& args, const SavedExchange& /*saved*/) {
  const ArenaScope scope(context.scratch);
  const AttentionChunks chunks(context, args.q);
  const KeysAndValues whole = gather(context, chunks, args.k, args.v);
  const std::int64_t s = chunks.sequence(), first_seen = keys_seen(chunks, args.mask, 0),
                     second_seen = keys_seen(chunks, args.mask, 1);
  const KeysAndValues gradients(context.scratch, "gradient of keys and values", args.k, s);
  {
    const ArenaScope of_first(context.scratch);
    // As much memory on every rank: first chunks are in the first half of sequences.
    const KeysAndValues first(context.scratch, "gradient of keys, of the first chunk", args.k,
                              first_seen < s ? s / 2 : s);
    attend_chunk_back(context, args, chunks, whole, first, 0);
    attend_chunk_back(context, args, chunks, whole, gradients, 1);
    if (second_seen < s) context.ops.fill(gradients.rows(second_seen, s - second_seen).all, 0);
    context.ops.add(first.rows(0, first_seen).all, gradients.rows(0, first_seen).all);
  }
  reduce_scatter(context, chunks, gradients, args.dk, args.dv);
}

}  // namespace megatron

// Attention of context ranks in a ring (Liu et al. 2023): keys and values go from rank to rank, and each rank attends
// to those that it has while the next ones arrive. What its queries have seen so far is kept as an output and its
// logarithm of sums, in f32, and merged with each part. Of two chunks of queries and two of keys a causal mask leaves
// two pairs at every step but the first, which has three.
//
// In the backward the gradients of keys and values follow them, in f32, one rank behind: each rank adds its queries'
// part, and the last one of the ring hands the sum to the rank whose rows they are.
#include <array>
#include <limits>
#include <utility>

#include "distributed/comm/meanings.h"
#include "models/attention/attention_chunks.h"
#include "models/attention/attention_exchange.h"

namespace megatron {

namespace {

constexpr int kKeysChannel = 0, kGradientsChannel = 1;

/// A rank's neighbours in the ring, and messages from and to them.
struct Ring {
  Communicator& ranks;

  int size() const { return ranks.size(); }
  /// The rank whose keys are here at a step.
  int source(int step) const { return (ranks.rank() + size() - step) % size(); }
  Pending start_send(ConstTensor values, int channel, const Holding<Hold::own>& said) const {
    return ranks.start_send(values, source(-1), channel, said);
  }
  Pending start_receive(Tensor values, int channel, const Holding<Hold::own>& said) const {
    return ranks.start_receive(values, source(1), channel, said);
  }
};

/// The keys and values that are here, and those that arrive meanwhile.
class PassedKeys {
 public:
  PassedKeys(Context& context, const Ring& ring, const ConstTensor& k, const ConstTensor& v)
      : ring_(ring),
        here_(context.scratch, "keys and values of a context rank", k, k.dim(0)),
        arriving_(context.scratch, "keys and values that arrive", k, k.dim(0)) {
    copy_rows(context.ops, k, here_.keys());
    copy_rows(context.ops, v, here_.values());
  }

  const KeysAndValues& here() const { return here_; }
  /// Before they are used: the last ones are not passed on.
  void start(int step) {
    if (step + 1 == ring_.size()) return;
    received_ = ring_.start_receive(arriving_.all, kKeysChannel, kPassedKeys);
    sent_ = ring_.start_send(here_.all, kKeysChannel, kPassedKeys);
  }
  void finish() {
    received_.wait();
    sent_.wait();
    std::swap(here_, arriving_);
  }

 private:
  const Ring& ring_;
  KeysAndValues here_, arriving_;
  Pending received_, sent_;
};

/// This rank's chunk i of queries and a rank's chunk j of keys, by their numbers in the sequence.
struct Pair {
  std::int64_t i, j, query_chunk, key_chunk, rows;

  /// Whether by their positions any query sees any key.
  bool seen(const AttentionMask& mask) const {
    if ((mask.causal || mask.window > 0) && key_chunk > query_chunk) return false;
    return mask.window == 0 || (key_chunk + 1) * rows > query_chunk * rows + 1 - mask.window;
  }
  AttentionMask mask(const AttentionChunks& chunks, AttentionMask mask) const {
    mask = chunks.mask(mask, i);
    mask.first_key = key_chunk * rows;
    if (key_chunk < query_chunk && mask.window == 0) mask.causal = false;  // it hides nothing
    return mask;
  }
};

/// The pairs of a step of which something is seen.
template <class Body>
void each_pair(Context& context, const AttentionChunks& chunks, const AttentionMask& mask, int source,
               const Body& body) {
  const ZigZag own = chunks.region().cut(), other{own.ranks, source};
  for (std::int64_t i = 0; i < 2; ++i) {
    for (std::int64_t j = 0; j < 2; ++j) {
      const Pair pair{i, j, own.chunk(i), other.chunk(j), chunks.rows()};
      if (!pair.seen(mask)) continue;
      body(pair);
      context.progress();
    }
  }
}

/// A sum in f32 in another type: itself, or rounded in scratch.
Tensor rounded(Context& context, Tensor sum, DType type) {
  if (type == DType::f32) return sum;
  const Tensor narrow = context.scratch.allocate("sum, rounded", sum.shape(), type);
  context.ops.copy(sum, narrow);
  return narrow;
}

/// sum += x, in f32.
void add_wide(Context& context, ConstTensor x, Tensor sum) {
  const ArenaScope scope(context.scratch);
  if (x.dtype() == DType::f32) return context.ops.add(x, sum);
  const Tensor wide = context.scratch.allocate("part of a sum in f32", x.shape(), DType::f32);
  context.ops.copy(x, wide);
  context.ops.add(wide, sum);
}

/// Gradients of keys and values on their way: those of the keys that are here.
class PassedGradients {
 public:
  PassedGradients(Context& context, const Ring& ring, const ConstTensor& k)
      : context_(context), ring_(ring), own_(allocate(k)), arriving_(allocate(k)), leaving_{allocate(k), allocate(k)} {}

  /// Zeros to which this step's queries add; what other ranks have added to the same keys may already arrive.
  KeysAndValues& start(int step) {
    if (step > 1) received_ = ring_.start_receive(arriving_.all, kGradientsChannel, kPassedKeyGradients);
    const auto turn = static_cast<std::size_t>(step % 2);
    sent_[turn].wait();
    KeysAndValues& here = step == 0 ? own_ : leaving_[turn];
    context_.ops.fill(here.all, 0);
    return here;
  }
  void finish(int step) {
    if (step == 0) return;
    const auto turn = static_cast<std::size_t>(step % 2);
    add_arrived(leaving_[turn]);
    sent_[turn] = ring_.start_send(leaving_[turn].all, kGradientsChannel, kPassedKeyGradients);
  }
  /// The sums over all ranks, of this rank's rows.
  const KeysAndValues& own() {
    received_ = ring_.start_receive(arriving_.all, kGradientsChannel, kPassedKeyGradients);
    add_arrived(own_);
    for (Pending& sent : sent_) sent.wait();
    return own_;
  }

 private:
  KeysAndValues allocate(const ConstTensor& k) const {
    return KeysAndValues(context_.scratch, "gradient of keys and values on its way", k, k.dim(0), DType::f32);
  }
  void add_arrived(const KeysAndValues& to) {
    if (!received_.active()) return;
    received_.wait();
    context_.ops.add(arriving_.all, to.all);
  }

  Context& context_;
  const Ring& ring_;
  KeysAndValues own_, arriving_;
  std::array<KeysAndValues, 2> leaving_;
  Pending received_;
  std::array<Pending, 2> sent_;
};

}  // namespace

void ring_attention::forward(Context& context, const AttentionForwardArgs& args, SavedExchange& /*saved*/) {
  const ArenaScope scope(context.scratch);
  const AttentionChunks chunks(context, args.q);
  const Ring ring{chunks.region().communicator()};
  const Tensor sum = context.scratch.allocate("attention output, merged", args.q.shape(), DType::f32);
  const Tensor part =
      context.scratch.allocate("attention output of a pair of chunks", chunks.chunk(args.q, 0).shape(), args.q.dtype());
  const Tensor log_sum_exp =
      context.scratch.allocate("its log-sum-exp", chunks.chunk_by_heads(args.log_sum_exp, 0).shape(), DType::f32);
  PassedKeys keys(context, ring, args.k, args.v);
  context.ops.fill(sum, 0);
  context.ops.fill(args.log_sum_exp, -std::numeric_limits<double>::infinity());
  for (int step = 0; step < ring.size(); ++step) {
    keys.start(step);
    each_pair(context, chunks, args.mask, ring.source(step), [&](const Pair& pair) {
      const KeysAndValues seen = keys.here().rows(pair.j * pair.rows, pair.rows);
      context.ops.attention_forward({.q = chunks.chunk(args.q, pair.i),
                                     .k = seen.keys(),
                                     .v = seen.values(),
                                     .out = part,
                                     .log_sum_exp = log_sum_exp,
                                     .scale = args.scale,
                                     .mask = pair.mask(chunks, args.mask),
                                     .dropout = chunks.dropout(args.dropout, pair.i)});
      context.ops.merge_attention({.part = part,
                                   .part_log_sum_exp = log_sum_exp,
                                   .out = chunks.chunk(sum, pair.i),
                                   .log_sum_exp = chunks.chunk_by_heads(args.log_sum_exp, pair.i)});
    });
    keys.finish();
  }
  copy_rows(context.ops, rounded(context, sum, args.out.dtype()), args.out);
}

// By the output and the logarithms of all keys, so that parts need no merging: they are summed.
void ring_attention::backward(Context& context, const AttentionBackwardArgs& args, const SavedExchange& /*saved*/) {
  const ArenaScope scope(context.scratch);
  const AttentionChunks chunks(context, args.q);
  const Ring ring{chunks.region().communicator()};
  const Tensor dq = context.scratch.allocate("query gradient, summed", args.q.shape(), DType::f32);
  const Tensor dq_part =
      context.scratch.allocate("query gradient of a pair of chunks", chunks.chunk(args.q, 0).shape(), args.q.dtype());
  const KeysAndValues part(context.scratch, "gradient of keys and values of a pair of chunks", args.k, chunks.rows());
  PassedKeys keys(context, ring, args.k, args.v);
  PassedGradients gradients(context, ring, args.k);
  context.ops.fill(dq, 0);
  for (int step = 0; step < ring.size(); ++step) {
    keys.start(step);
    const KeysAndValues& sums = gradients.start(step);
    each_pair(context, chunks, args.mask, ring.source(step), [&](const Pair& pair) {
      const KeysAndValues seen = keys.here().rows(pair.j * pair.rows, pair.rows);
      context.ops.attention_backward({.dout = chunks.chunk(args.dout, pair.i),
                                      .q = chunks.chunk(args.q, pair.i),
                                      .k = seen.keys(),
                                      .v = seen.values(),
                                      .out = chunks.chunk(args.out, pair.i),
                                      .log_sum_exp = chunks.chunk_by_heads(args.log_sum_exp, pair.i),
                                      .dq = dq_part,
                                      .dk = part.keys(),
                                      .dv = part.values(),
                                      .scale = args.scale,
                                      .mask = pair.mask(chunks, args.mask),
                                      .dropout = chunks.dropout(args.dropout, pair.i),
                                      .ddistance_bias = args.ddistance_bias});
      add_wide(context, dq_part, chunks.chunk(dq, pair.i));
      add_wide(context, part.all, sums.rows(pair.j * pair.rows, pair.rows).all);
    });
    gradients.finish(step);
    keys.finish();
  }
  copy_rows(context.ops, rounded(context, dq, args.dq.dtype()), args.dq);
  const KeysAndValues own(rounded(context, gradients.own().all, args.dk.dtype()));
  copy_rows(context.ops, own.keys(), args.dk);
  copy_rows(context.ops, own.values(), args.dv);
}

}  // namespace megatron

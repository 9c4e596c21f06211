// Ops: the dictionary of mathematics that models are written in, one virtual verb per whole operation. Class Ops says
// which conventions hold for every verb.
//
// CPU: src/backend/cpu, one file per family. Counting (FLOPs and working memory for --dry-run): counting_ops.h.
#pragma once

#include <array>
#include <cstdint>

#include "backend/ops/expert_routing.h"
#include "backend/ops/mixed_rows.h"
#include "backend/ops/verbs.h"
#include "backend/tensor/tensor.h"
#include "base/core/activations.h"
#include "base/core/distance_buckets.h"
#include "base/core/normalizations.h"

namespace megatron {

class Ranges;

/// The dropout mask: a pure function of (key, sample, head, position, index), see philox.h and design of the masks
/// in backend/cpu/dropout.h. Element `index` is kept iff its 16-bit draw is >= round(probability * 65536); kept values
/// are multiplied by 65536 / (65536 - round(probability * 65536)). Draw for (index, position, head, sample): 16-bit
/// lane index % 8 of philox4x32<7>({index / 8, position, head, sample}, key), lane 2i the low half of word i.
struct Dropout {
  float probability = 0;          ///< 0: no dropout, nothing else is read
  std::uint64_t key = 0;          ///< random_key(seed, step, site)
  ConstTensor positions;          ///< i32 [s]: global position of each sequence row
  std::int64_t first_sample = 0;  ///< column b is sample first_sample + b of the global batch
  std::int64_t first_head = 0;    ///< attention only: global index of local head 0
};

/// A backend may multiply as few rows as this, or fewer, in another way than more of them, with a workspace of another
/// size.
inline constexpr std::int64_t kFewRows = 32;

/// c = op(a) · op(b), added to c if `accumulate`. Matrices with unit stride in the last dimension, any row stride.
/// op is the transpose where asked. c[m, n], op(a)[m, k], op(b)[k, n]. Accumulates in f32.
struct MatmulArgs {
  ConstTensor a, b;
  bool transpose_a = false, transpose_b = false;
  Tensor c;  ///< sets, or adds if accumulate
  bool accumulate = false;
};

/// x[n, c] += bias[c], in place.
struct AddBiasArgs {
  Tensor x;  ///< adds
  ConstTensor bias;
};

/// y[c] += sum over rows of x[n, c].
struct ColumnSumArgs {
  ConstTensor x;
  Tensor y;  ///< adds, f32
};

/// y = activation(x + bias). A gated x has 2f columns: f of gates, then f of what they let through.
struct BiasActivationForwardArgs {
  ConstTensor x;     ///< [n, f], gated [n, 2f]
  ConstTensor bias;  ///< [columns of x], optional
  Tensor y;          ///< [n, f], sets
  Activation activation = Activation::gelu;
};
struct BiasActivationBackwardArgs {
  ConstTensor dy, x;  ///< as y and x of forward
  ConstTensor bias;   ///< optional
  Tensor dx;          ///< sets, as x; may alias x, and dy if not gated
  Tensor dbias;       ///< adds, f32, as bias, optional
  Activation activation = Activation::gelu;
};

/// y = x · weightᵀ + bias.
struct LinearForwardArgs {
  ConstTensor x, weight;  ///< [n, in], [out, in]
  ConstTensor bias;       ///< [out], optional
  Tensor y;               ///< [n, out], sets
};
/// y = activation(x · weightᵀ + bias).
struct LinearActivationForwardArgs {
  ConstTensor x, weight, bias;  ///< as in LinearForwardArgs
  Tensor product;  ///< [n, out], sets: x · weightᵀ, with its bias or without, as this backend's backward reads it
  Tensor y;        ///< [n, out], gated [n, out / 2], sets
  Activation activation = Activation::gelu;
  bool again = false;  ///< y is to have the bits that activation_again() makes of `product`
};
/// The y of such a forward, from its product.
struct ActivationAgainArgs {
  ConstTensor product, bias;  ///< as in forward, which has set the product
  Tensor y;                   ///< as forward's, sets
  Activation activation = Activation::gelu;
};
/// The gradient's way back through the linear layer that follows, and that activation: dproduct is the gradient of
/// what the activation was of, whose own gradient is dy · weight.
struct LinearActivationBackwardArgs {
  ConstTensor dy, weight;     ///< [n, k], [k, columns of forward's y]: of the layer that follows
  ConstTensor product, bias;  ///< as in forward
  Tensor dactivated;          ///< as forward's y: worked in
  Tensor dproduct;            ///< sets, as product; may alias product, and dactivated if not gated
  Tensor dbias;               ///< adds, f32, as bias, optional
  Activation activation = Activation::gelu;
};

/// y = residual + dropout(x + bias). x, y, residual: [s, b, h]. Without residual: y = dropout(x + bias).
struct DropoutAddForwardArgs {
  ConstTensor x;
  ConstTensor bias;      ///< [h], optional
  ConstTensor residual;  ///< optional
  Tensor y;              ///< sets; may alias x or residual
  Dropout dropout;
};
/// dx = mask · scale · dy (the residual's gradient is dy itself).
struct DropoutAddBackwardArgs {
  ConstTensor dy;
  Tensor dx;     ///< sets; may alias dy
  Tensor dbias;  ///< [h] adds, f32, optional
  Dropout dropout;
};

/// Normalisation over the last dimension, biased variance, statistics in f32; `kind` says which.
/// Rows [..., h] of x, y and their gradients may be strided, each tensor's in its own way: all dimensions but the last
/// evenly spaced but for one jump, as the heads of a query [s, b, heads, d] in its product with key and value.
struct LayerNormForwardArgs {
  ConstTensor x;      ///< [n, h]
  ConstTensor gamma;  ///< [h]
  ConstTensor beta;   ///< [h], optional
  Tensor y;           ///< sets; may alias x
  Tensor mean;        ///< sets, f32 [n], if the kind is centered
  Tensor rstd;        ///< sets, f32 [n]
  float epsilon = 1e-5f;
  Normalization kind = Normalization::layer;
};
struct LayerNormBackwardArgs {
  ConstTensor dy, x, gamma;
  ConstTensor mean, rstd;         ///< forward's
  ConstTensor residual_gradient;  ///< optional, [n, h]: added into dx (the gradient that by-passed the norm)
  Tensor dx;                      ///< sets; may alias dy or residual_gradient
  Tensor dgamma;                  ///< adds, f32 [h]
  Tensor dbeta;                   ///< adds, f32 [h], optional
  Normalization kind = Normalization::layer;
};

/// Rotary position embedding (Su et al. 2021), half-split: of the first r channels of every head, the pair i and
/// i + r/2 is turned by the angle position · inverse_frequencies[i]; the channels from r on stay as they are. Angles
/// are those of the exact product, to 1e-7 as far as the millionth position.
struct RotaryArgs {
  Tensor x;                         ///< [s, b, heads, d], strided, in place
  ConstTensor positions;            ///< i32 [s, b]
  ConstTensor inverse_frequencies;  ///< f32 [r/2], r <= d; from 0 to less than 2π
  bool inverse = false;             ///< turns back: the gradient's way
};

/// Writes the rows of each sample at its own offset, as a cache of keys or values grows: y[offsets[i] + row, i] =
/// x[row, i]. Rows past the end of y are left out. Without offsets: copies between strided tensors.
struct AppendRowsArgs {
  ConstTensor x;        ///< [s, b, heads, d], strided
  ConstTensor offsets;  ///< optional, i32 [b], from 0; absent: 0
  Tensor y;             ///< [capacity, b, heads, d], strided: sets those rows, all others stay
};

/// The keys that a query may see, and the cap and the bias of its scores. Query row i of a sample has sequence position
/// i plus that sample's offset, key row j position j plus the first key's. Visible: key_length, causal, window and
/// document start all allow it. A query that sees nothing gets 0.
struct AttentionMask {
  bool causal = true;
  ConstTensor query_offsets;    ///< optional, i32 [b], from 0: keys in front of each sample's queries; absent: 0
  std::int64_t window = 0;      ///< > 0: only the last `window` positions up to the query's own
  ConstTensor key_lengths;      ///< optional, i32 [b]: keys at or past it are padding, and may hold anything
  ConstTensor document_starts;  ///< optional, i32 [b, s_q]: first visible key of each query, never less than the last's
  float softcap = 0;          ///< > 0: scores become softcap · tanh(score / softcap), before a bias is added (Gemma 2)
  ConstTensor slopes;         ///< optional, f32 [a]: ALiBi, slope · (key position - query position) is added
  ConstTensor distance_bias;  ///< optional, [a, buckets]: T5, [head, bucket of key position - query position] is added
  DistanceBuckets distance_buckets;  ///< for distance_bias; nothing else reads it
  std::int64_t first_key = 0;  ///< position of key row 0, from which on queries, lengths, documents and the mask of
                               ///< dropout count; with dropout a multiple of 8
};

/// out = softmax(cap(scale · q kᵀ) + bias, masked) dropped-out · v, per sample and head, blocked with online softmax
/// (Dao et al. 2022): s_q × s_k is never materialised. Head strides are free (q, k, v may be views into one matmul's
/// result); a_kv divides a, and query head i reads key/value head i / (a / a_kv).
struct AttentionForwardArgs {
  ConstTensor q;       ///< [s_q, b, a, d], strided
  ConstTensor k, v;    ///< [s_k, b, a_kv, d], strided
  Tensor out;          ///< sets, [s_q, b, a, d], strided
  Tensor log_sum_exp;  ///< sets, f32 [b, a, s_q]; -infinity where nothing is visible
  float scale = 1;
  AttentionMask mask;
  Dropout dropout;
};
struct AttentionBackwardArgs {
  ConstTensor dout, q, k, v, out, log_sum_exp;  ///< shapes as in forward
  Tensor dq, dk, dv;                            ///< sets, strided like q, k, v
  float scale = 1;
  AttentionMask mask;
  Dropout dropout;
  Tensor ddistance_bias = {};  ///< adds, f32 [a, buckets], optional: of the mask's distance_bias, always the same bits
};

/// Attention of the same queries to other keys is added to what is there: out and log_sum_exp become those of the
/// softmax over both. Without dropout's part in log_sum_exp, so that each may have been dropped out.
struct MergeAttentionArgs {
  ConstTensor part;              ///< [s_q, b, a, d]: attention_forward's out
  ConstTensor part_log_sum_exp;  ///< f32 [b, a, s_q]; -infinity where nothing was visible
  Tensor out;                    ///< f32 [s_q, b, a, d], in place
  Tensor log_sum_exp;            ///< f32 [b, a, s_q], in place
};

/// y[i] = weight[ids[i] - first_row] where that row is here, else 0 (vocabulary-parallel look-up).
struct EmbeddingForwardArgs {
  ConstTensor ids;     ///< i32 [n]
  ConstTensor weight;  ///< [rows, h]
  std::int64_t first_row = 0;
  Tensor y;  ///< [n, h] sets, or adds if accumulate
  bool accumulate = false;
};
struct EmbeddingBackwardArgs {
  ConstTensor ids, dy;
  std::int64_t first_row = 0;
  Tensor dweight;  ///< adds, f32, in order of i (deterministic)
};

/// One rank's part of a vocabulary-parallel cross entropy. logits[n, v] are columns first_column... of the full
/// matrix; columns at or past vocab_size (padding) do not exist for it. Over the local columns, per row:
/// maximum, sum_exp = sum of exp(logit - maximum), target_logit = the target's logit if it is here, else 0.
/// A rank whose columns are all padding gives (-infinity, 0, 0).
struct CrossEntropyLocalArgs {
  ConstTensor logits;
  ConstTensor targets;  ///< i32 [n], global columns
  std::int64_t first_column = 0, vocab_size = 0;
  Tensor maximum, sum_exp, target_logit;  ///< sets, f32 [n]
};
/// After the maximum over all ranks is known: sum_exp *= exp(local_maximum - maximum).
struct CrossEntropyRescaleArgs {
  ConstTensor local_maximum, maximum;
  Tensor sum_exp;  ///< in place
};
/// loss[i] = maximum + ln(sum_exp) - target_logit; total += sum of weight[i] · loss[i].
struct CrossEntropyLossArgs {
  ConstTensor maximum, sum_exp, target_logit;  ///< global, f32 [n]
  ConstTensor weights;                         ///< optional, f32 [n]
  Tensor losses;                               ///< optional, sets, f32 [n] (not weighted)
  Tensor total;                                ///< adds, f64 [1]
};
/// logits become their gradient: (exp(logit - maximum) / sum_exp - onehot(target)) · weight · scale; 0 in padding.
struct CrossEntropyBackwardArgs {
  Tensor logits;  ///< in: logits, out: gradient
  ConstTensor targets;
  std::int64_t first_column = 0, vocab_size = 0;
  ConstTensor maximum, sum_exp;
  ConstTensor weights;  ///< optional
  float scale = 1;      ///< coefficient · loss_scale / count
};

/// Rounding of states that an update keeps in bf16: up or down by chance, so that the mean is the number itself. A
/// draw from 0 to 65535 is added to the bits of the f32 number, whose lower 16 are cut off. What bf16 can hold stays,
/// and so do infinity and NaN. Beyond the largest finite number, 3.39e38, the other neighbour is infinity. Draw of row
/// r, column c of the whole matrix: 16-bit lane c % 8 of philox4x32<7>({c / 8, r, 0, 0}, key), as in Dropout. A vector
/// is a matrix of one row.
struct StateDraws {
  std::array<std::uint64_t, 2> keys{};           ///< random_key(seed, step, site), of m and of v
  std::int64_t first = 0;                        ///< the update's first element in a box, whose rows it goes along
  std::int64_t columns = 0;                      ///< width of the box
  std::int64_t first_row = 0, first_column = 0;  ///< place of the box in the matrix
};

/// AdamW (Loshchilov & Hutter 2019) as apex FusedAdam: g = clip_factor · gradient; m, v updated; bias-corrected;
/// value -= learning_rate · (m̂ / (sqrt(v̂) + epsilon) + weight_decay · value). One pass. Does nothing if skip is not 0.
struct AdamWArgs {
  Tensor value;  ///< f32 [n], in place (the master copy where values are 16-bit)
  ConstTensor gradient;
  Tensor m, v;              ///< f32 or both bf16 [n], in place
  StateDraws draws = {};    ///< used for bf16 ones
  ConstTensor clip_factor;  ///< f32 [1]
  ConstTensor skip;         ///< f32 [1]
  float learning_rate = 0, beta1 = 0.9f, beta2 = 0.999f, epsilon = 1e-8f, weight_decay = 0;
  std::int64_t step = 1;  ///< number of this update, from 1
};

/// Stochastic gradient descent with momentum and classic L2 decay: g = clip_factor · gradient + weight_decay · value;
/// m = momentum · m + g; value -= learning_rate · m. Does nothing if skip is not 0.
struct SgdArgs {
  Tensor value;  ///< f32 [n], in place (the master copy where values are 16-bit)
  ConstTensor gradient;
  Tensor m;                 ///< f32 or bf16 [n], in place; optional: absent, m is g
  StateDraws draws = {};    ///< used for a bf16 one
  ConstTensor clip_factor;  ///< f32 [1]
  ConstTensor skip;         ///< f32 [1]
  float learning_rate = 0, momentum = 0.9f, weight_decay = 0;
};

/// Lion (Chen et al. 2023, https://arxiv.org/abs/2302.06675): g = clip_factor · gradient;
/// value -= learning_rate · (sign(beta1 · m + (1 - beta1) · g) + weight_decay · value), with sign(0) = 0; then
/// m = beta2 · m + (1 - beta2) · g. One pass. Does nothing if skip is not 0.
struct LionArgs {
  Tensor value;  ///< f32 [n], in place (the master copy where values are 16-bit)
  ConstTensor gradient;
  Tensor m;                 ///< f32 or bf16 [n], in place
  StateDraws draws = {};    ///< used for a bf16 one
  ConstTensor clip_factor;  ///< f32 [1]
  ConstTensor skip;         ///< f32 [1]
  float learning_rate = 0, beta1 = 0.9f, beta2 = 0.99f, weight_decay = 0;
};

/// total += sum of x².
struct SquareSumArgs {
  ConstTensor x;
  Tensor total;  ///< adds, f64 [1]
};
/// x /= sqrt(square_sum) + epsilon.
struct DivideByNormArgs {
  Tensor x;                ///< f32 [n], in place
  ConstTensor square_sum;  ///< f64 [1]
  float epsilon = 0;
};
/// Judges a step by sums over its ranks. Its gradients are loss_scale times the loss', so that a sum of their squares
/// has the norm sqrt(sum) / loss_scale. norm = that of square_sum; factor = min(1, maximum / (norm + 1e-6)) /
/// loss_scale, 1 / loss_scale if maximum is 0; bad_loss = 1 if one of the losses is not finite, else 0; skip = 1 if
/// bad_loss is, the norm of all_square_sum is not finite in f32, or uncounted_square_sum is not finite, else 0.
struct JudgeStepArgs {
  ConstTensor square_sum;            ///< f64 [1]: of one copy of the model
  ConstTensor all_square_sum;        ///< f64 [1]: of all its copies together
  ConstTensor uncounted_square_sum;  ///< f64 [1]: of gradients that ranks hold and that other ranks have counted there
  ConstTensor losses;                ///< optional, f64 [terms]
  float maximum = 0;
  double loss_scale = 1;
  Tensor norm, factor, skip, bad_loss;  ///< sets, f32 [1]
};

/// y = a normal variate of standard deviation `deviation` per element, by its global index in the whole parameter.
/// Element e uses word pair of philox4x32<7>({e/4 low, e/4 high, 0, 0}, key): Box-Muller over words (0,1) and (2,3).
/// y[rows, columns] is the box at (first_row, first_column) of a matrix with `global_columns` columns.
struct NormalArgs {
  Tensor y;  ///< sets
  std::uint64_t key = 0;
  float deviation = 1;
  std::int64_t first_row = 0, first_column = 0, global_columns = 0;
};

/// Conventions for every verb:
///   * Tensors are contiguous and of the activations' dtype unless the comment says otherwise. A default-constructed
///     tensor marked `optional` is absent.
///   * Outputs marked `sets` are overwritten, those marked `adds` are added to. Outputs do not alias inputs unless the
///     comment says `may alias`.
///   * "n" rows stand for all leading dimensions together: [s, b, h] is n = s*b rows of h. Statistics, gradients of
///     parameters and scalars are f32 (or f64 where said); sums accumulate in f32 at least.
///   * No verb returns a host scalar: norms, factors and losses are one-element tensors. The host gets numbers that it
///     needs for decisions from read(), which waits.
///   * A backend throws Error(configuration) naming verb and dtype where it lacks one.
class Ops {
 public:
  virtual ~Ops() = default;

#define MEGATRON_VERB(name, parameters, arguments) virtual void name parameters = 0;
  MEGATRON_VERBS(MEGATRON_VERB)
#undef MEGATRON_VERB
#define MEGATRON_VERB(name, parameters, arguments) virtual void name parameters;
  MEGATRON_FUSED_VERBS(MEGATRON_VERB)
#undef MEGATRON_VERB

  /// The largest workspace that a verb has used since the last reserve(), in bytes of the device's memory.
  /// What libraries below a backend take for themselves is not known here.
  virtual std::size_t workspace_bytes() const = 0;
  /// Allocates so much for that at once, and gives back what there was. Played by a backend's counting operations, a
  /// step says in workspace_bytes() how much it is; a verb that needs more than was reserved allocates it, and keeps
  /// it.
  virtual void reserve(std::size_t bytes) = 0;

  /// The host has the values of `x` in `host`, of as many bytes, when this returns: it waits for the verbs so far.
  /// Counting operations leave `host` as it is.
  virtual void read(ConstTensor x, void* host) = 0;

  /// The profiler that is told which phase and layer the verbs belong to (base/core/ranges.h); null: there is none.
  virtual Ranges* ranges() {
    return nullptr;
  }
};

}  // namespace megatron

// Logits against the word table or a separate matrix, with a bias where there is one, and their vocabulary-parallel
// cross entropy: what heads of tokens have in common. Knows no norm in front of it.
// Logits stay cut over the tensor ranks; a row needs three sums of one number each (Shoeybi et al. 2019, section 3).
// In several chunks of rows, a chunk's logits become gradients before the next chunk's take their memory.
#pragma once

#include "models/layers/linear.h"

namespace megatron {

class VocabularyLoss {
 public:
  /// Facts of rows' logits over the whole vocabulary, f32.
  struct Statistics {
    Tensor maximum;  ///< [n]
    Tensor sums;     ///< [2, n]: of exponentials, and the targets' logits, which travel in one message
    Tensor sum_exp() const { return sums.slice(0, 0, 1).view({sums.dim(1)}); }
    Tensor target_logit() const { return sums.slice(0, 1, 1).view({sums.dim(1)}); }
  };
  /// A forward in one chunk sets all but dx, a forward in several sets dx alone.
  struct Saved {
    ConstTensor x;  ///< [s(/t), b, h], kept by the caller until backward
    Tensor logits;  ///< [s·b, V/t]; becomes its own gradient in backward
    Statistics statistics;
    Tensor dx;  ///< [s(/t), b, h]: the gradient, where a backward follows
  };

  /// Uses `word`, the output matrix, of which `vocab` rows are real and the rest is padding that does not exist, and
  /// `bias` (kNone: none); `loss_term` is the term of the model's loss that this computes. With more chunks than rows
  /// each row is one.
  VocabularyLoss(const ParameterStore& store, int word, int bias, std::int64_t vocab, int loss_term,
                 std::int64_t chunks)
      : store_(&store), word_(word), bias_(bias), vocab_(vocab), loss_term_(loss_term), chunks_(chunks) {}

  /// Adds the sum of this micro-batch's token losses, each times its weight if there are weights, to its term of
  /// PassSettings::loss_sums, the same on every tensor rank. Sets context.results, if there are any. In several chunks
  /// also adds the parameters' gradients, where a backward follows.
  void forward(Context& context, ConstTensor x, Saved& saved) const;
  /// Gradient of context.gradient_scale(term) · that sum: sets dx, and adds the parameters' gradients if the forward
  /// has not.
  void backward(Context& context, Saved& saved, Tensor dx) const;
  /// Logits of this rank's columns for every row, without a loss: sets logits [s·b, V/t].
  void logits(Context& context, ConstTensor x, Tensor logits) const;
  /// Where forward's input has to be: in context.saved if backward reads it, else in context.scratch.
  Arena& input_arena(Context& context) const { return chunks_ > 1 ? context.scratch : *context.saved; }

 private:
  /// Consecutive rows of a micro-batch.
  struct Rows {
    std::int64_t first, count;
    ConstTensor of(const ConstTensor& whole) const { return whole ? whole.slice(0, first, count) : ConstTensor(); }
    Tensor of(const Tensor& whole) const { return whole.slice(0, first, count); }
  };

  /// Sets logits [n, V/t] of x [n, h].
  void multiply(Context& context, ConstTensor x, Tensor logits) const;
  void measure(Context& context, const Rows& rows, ConstTensor logits, const Statistics& statistics) const;
  /// Adds all rows' losses to the sum, and sets results.
  void add_losses(Context& context, const Statistics& all) const;
  /// The logits become their gradient; adds that of the bias.
  void differentiate(Context& context, const Rows& rows, Tensor logits, const Statistics& statistics) const;
  void forward_in_chunks(Context& context, ConstTensor x, Saved& saved) const;

  const ParameterStore* store_;
  int word_, bias_;
  std::int64_t vocab_;
  int loss_term_;
  std::int64_t chunks_;
};

}  // namespace megatron

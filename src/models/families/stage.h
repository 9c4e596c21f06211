// Stage: what the pipeline executor needs of a model: the part that lives on one pipeline rank, forward and backward.
// Knows neither schedules nor neighbours.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "models/batch/batch_layout.h"
#include "models/layers/context.h"

namespace megatron {

/// A tensor that travels from one stage to the next, [rows of its stream outside the tensor region, b, width]; its
/// gradient travels back.
struct Link {
  Stream stream = Stream::main;
  std::int64_t width = 0;
};

/// One tensor for each link, in their order.
using StageData = std::vector<Tensor>;

/// State that a stage keeps of one micro-batch from forward to backward; each model derives its own. Its tensors live
/// in the slot's arena. Made once per slot.
struct StageSaved {
  virtual ~StageSaved() = default;
};

class Stage {
 public:
  virtual ~Stage() = default;

  /// Links from the previous stage and to the next one: a stage sends what the next one receives. They differ where a
  /// stream begins or ends.
  virtual std::span<const Link> receives() const = 0;
  virtual std::span<const Link> sends() const = 0;
  bool first() const { return receives().empty(); }
  bool last() const { return sends().empty(); }

  /// Whether its layers read a field of a batch: by default the first stage embeds, all attend, the last has the head.
  virtual bool reads(const BatchField& field) const;

  virtual std::unique_ptr<StageSaved> make_saved() const = 0;

  /// in: from the previous stage (empty on the first); out: set, for the next one (empty on the last). Adds its
  /// terms of the loss, if it has any, to PassSettings::loss_sums. `in` must live until backward.
  virtual void forward(Context& context, const StageData& in, const StageData& out, StageSaved& saved) const = 0;
  /// dout: gradient of out (empty on the last stage); din: set, gradient of in (empty on the first). Adds the
  /// gradients of all parameters; those of matrices by way of context.weight_gradients, which may defer them.
  virtual void backward(Context& context, const StageData& dout, const StageData& din, StageSaved& saved) const = 0;
  /// Adds the gradients of matrices that a backward with `work` as its context.weight_gradients has deferred.
  virtual void backward_weight(Context& context, DeferredWeightGradients& work, StageSaved& /*saved*/) const {
    work.run(context);
  }

  /// Memory in `arena` for the keys and values of every layer. Error(configuration) where a model predicts no next
  /// token.
  virtual KeyValueCache make_cache(Arena& arena, const CacheSizes& sizes, DType type) const;
  /// Forward without a loss, keeping nothing: in and out as in forward(). The last stage sets logits [n, V/t], of the
  /// tokens after `rows`, i32 [n], of its s·b rows, or after every row if that is absent; without `logits` none. With
  /// context.cache the tokens of earlier passes are seen, and of an encoder-decoder the decoder alone runs: in and out
  /// hold the main stream's links. Error(configuration) where a model predicts no next token.
  virtual void infer(Context& context, const StageData& in, const StageData& out, ConstTensor rows,
                     Tensor logits) const;
  /// Forward of an encoder, whose output's keys and values go into context.cache: in and out hold the encoder stream's
  /// links. Error(internal) of a model without one.
  virtual void encode(Context& context, const StageData& in, const StageData& out) const;
};

}  // namespace megatron

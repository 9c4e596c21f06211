// Stage: what the pipeline executor needs of a model: the part that lives on one pipeline rank, forward and backward.
// Knows neither schedules nor neighbours.
#pragma once

#include <memory>
#include <vector>

#include "nn/context.h"

namespace megatron {

/// Tensors that travel between stages: one for a decoder, two for an encoder-decoder.
using StageData = std::vector<Tensor>;

/// What a stage keeps of one micro-batch from forward to backward; each model derives its own. Its tensors live in the
/// slot's arena. Made once per slot.
struct StageSaved {
  virtual ~StageSaved() = default;
};

class Stage {
 public:
  virtual ~Stage() = default;

  virtual bool first() const = 0;  ///< receives nothing
  virtual bool last() const = 0;   ///< sends nothing; computes the loss
  /// Number and shapes of the tensors that arrive from the previous stage and leave for the next one (and of their
  /// gradients).
  virtual int links() const = 0;
  virtual Shape link_shape(int link, std::int64_t sequence, std::int64_t samples) const = 0;

  virtual std::unique_ptr<StageSaved> make_saved() const = 0;

  /// in: from the previous stage (empty on the first); out: set, for the next one (empty on the last). The last stage
  /// adds its losses to loss_total, f64 [1]. `in` must live until backward.
  virtual void forward(Context& context, const StageData& in, const StageData& out, Tensor loss_total,
                       StageSaved& saved) const = 0;
  /// dout: gradient of out (empty on the last stage); din: set, gradient of in (empty on the first). Adds the
  /// gradients of all parameters, but those that it puts off if context.weight_work is set.
  virtual void backward(Context& context, const StageData& dout, const StageData& din, StageSaved& saved) const = 0;
  /// Adds the gradients of matrices that a backward with context.weight_work has put off in `work`.
  virtual void backward_weight(Context& context, WeightWork& work, StageSaved& /*saved*/) const { work.run(context); }
};

}  // namespace megatron

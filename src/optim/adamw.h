// AdamW over a parameter store: moments, global-norm clipping, and the decision to skip a step whose gradient is not
// finite. The same decision on all ranks: the norm is summed over one whole model replica.
//
// Owns m and v, flat like the store's buffers. Values are updated in place. Knows parameters, not models.
#pragma once

#include <vector>

#include "comm/process_grid.h"
#include "parallel/parameter.h"

namespace megatron {

struct AdamWSettings {
  double beta1 = 0.9, beta2 = 0.999, epsilon = 1e-8, weight_decay = 0.01;
  double clip_norm = 1;  ///< 0: no clipping
};

class AdamW {
 public:
  /// The store must be allocated and outlive the optimizer.
  AdamW(const ParameterStore& store, const AdamWSettings& settings, Device& device, Ops& ops);

  struct Update {
    double gradient_norm = 0;  ///< of the whole gradient, before clipping
    bool skipped = false;      ///< the norm was not finite: nothing was changed
  };
  /// One update from the store's gradients, which must be summed over all partial axes. Collective over the model
  /// group.
  Update update(const ProcessGrid& grid, double learning_rate);

  std::int64_t updates() const { return updates_; }  ///< successful ones: Adam's k
  void set_updates(std::int64_t updates) { updates_ = updates; }
  Tensor m() const { return m_; }  ///< flat f32
  Tensor v() const { return v_; }  ///< flat f32

  /// Bytes of optimizer state for a store of this many flat elements.
  static std::size_t state_bytes(std::int64_t flat_elements) {
    return 2 * sizeof(float) * static_cast<std::size_t>(flat_elements);
  }

 private:
  /// A maximal range of the flat buffers with one property.
  struct Range {
    std::int64_t first, count;
    bool decay;
  };

  const ParameterStore& store_;
  AdamWSettings settings_;
  Device& device_;
  Ops& ops_;
  std::vector<Range> ranges_;   // by weight decay
  std::vector<Range> counted_;  // parts that this rank counts in the norm
  Buffer moments_, scalars_;
  Tensor m_, v_;
  Tensor square_sum_, norm_, factor_, skip_;
  std::int64_t updates_ = 0;
};

}  // namespace megatron

// Optimizer: AdamW over a parameter store: moments, master copy, global-norm clipping, and the decision to skip a step
// whose gradient is not finite. The same decision on all ranks: the norm is summed over one whole model replica.
//
// Owns m and v, flat like the store's buffers, and an f32 master copy of the values where these are 16-bit (where they
// are f32 they are the master themselves). After an update values = the master, rounded. Knows parameters, not models.
#pragma once

#include <vector>

#include "comm/process_grid.h"
#include "parallel/parameter.h"

namespace megatron {

struct OptimizerSettings {
  double beta1 = 0.9, beta2 = 0.999, epsilon = 1e-8;
  double clip_norm = 1;  ///< 0: no clipping
};

/// What may be another number at every step.
struct UpdateSettings {
  double learning_rate = 0;
  double weight_decay = 0;  ///< of parameters that decay
  double loss_scale = 1;    ///< the store's gradients are the loss' times this
};

class Optimizer {
 public:
  /// The store must be allocated and outlive the optimizer. All state of its own is 0: initialize(), or read it.
  Optimizer(const ParameterStore& store, const OptimizerSettings& settings, Device& device, Ops& ops);

  /// Sets master and values to their initial numbers, functions of (seed, name, element): the same model in every
  /// precision, but for the rounding of 16-bit values. Gradients become 0.
  void initialize(std::uint64_t seed);
  /// Sets values to the master, rounded, after the master was read from somewhere.
  void set_values_from_master();

  struct Update {
    double gradient_norm = 0;  ///< of the whole gradient of the loss (not scaled), before clipping
    bool skipped = false;      ///< the norm was not finite: nothing was changed
  };
  /// One update from the store's gradients, which must be summed over all partial axes. Collective over the model
  /// group.
  Update update(const ProcessGrid& grid, const UpdateSettings& settings);

  std::int64_t updates() const { return updates_; }  ///< successful ones: Adam's k
  void set_updates(std::int64_t updates) { updates_ = updates; }
  Tensor master() const { return master_; }  ///< flat f32: of full precision whatever the values are
  Tensor m() const { return m_; }            ///< flat f32
  Tensor v() const { return v_; }            ///< flat f32
  std::size_t state_bytes() const { return state_.bytes(); }

  /// Bytes of optimizer state for a store of this many flat elements of this type.
  static std::size_t state_bytes(std::int64_t flat_elements, DType value_type) {
    const std::size_t tensors = value_type == DType::f32 ? 2 : 3;
    return tensors * sizeof(float) * static_cast<std::size_t>(flat_elements);
  }

 private:
  /// A maximal range of the flat buffers with one property.
  struct Range {
    std::int64_t first, count;
    bool decay;
  };

  bool has_master_copy() const { return store_.values().dtype() != DType::f32; }

  const ParameterStore& store_;
  OptimizerSettings settings_;
  Device& device_;
  Ops& ops_;
  std::vector<Range> ranges_;   // by weight decay
  std::vector<Range> counted_;  // parts that this rank counts in the norm
  Buffer state_, scalars_;
  Tensor m_, v_, master_;
  Tensor square_sum_, norm_, factor_, skip_;
  std::int64_t updates_ = 0;
};

}  // namespace megatron

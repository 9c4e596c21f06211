// Optimizer: AdamW or SGD over a parameter store: moments, master copy, global-norm clipping, and the decision to skip
// a step whose gradient is not finite. The same decision on all ranks: the norm is summed over one whole model replica.
//
// Owns m and v (SGD: m, its momentum, or none), and an f32 master copy of the values where these are 16-bit (where they
// are f32 they are the master themselves), each flat, of the ranges of the store that this rank owns: all, or with a
// store that is cut into shards (distributed optimizer, Rajbhandari et al. 2020, stage 1) its part of every
// bucket. After an update values = the master, rounded; with shards their gathers are on their way. Knows parameters,
// not models.
#pragma once

#include <string>
#include <vector>

#include "comm/process_grid.h"
#include "parallel/parameter.h"
#include "parallel/parameter_all_gather.h"

namespace megatron {

enum class UpdateRule { adamw, sgd };

/// The rule with the input file's name ("adamw", "sgd"). Errors: configuration.
UpdateRule update_rule(const std::string& name);

struct OptimizerSettings {
  UpdateRule rule = UpdateRule::adamw;
  double momentum = 0.9;  ///< of SGD; 0: none, and no memory for it
  double beta1 = 0.9, beta2 = 0.999, epsilon = 1e-8;
  double clip_norm = 1;  ///< 0: no clipping

  /// Numbers of state that the rule keeps for each value: m and v, m alone, or nothing.
  int moments() const { return rule == UpdateRule::adamw ? 2 : momentum != 0 ? 1 : 0; }
};

/// What may be another number at every step.
struct UpdateSettings {
  double learning_rate = 0;
  double weight_decay = 0;  ///< of parameters that decay: decoupled (AdamW), or L2 as a part of the gradient (SGD)
  double loss_scale = 1;    ///< the store's gradients are the loss' times this
  /// f64 [1], optional: this rank's part of the loss, the same on all tensor ranks, 0 on stages that have none. If it
  /// is not finite on some rank nothing is changed on any.
  ConstTensor loss = {};
};

class Optimizer {
 public:
  /// The store must be allocated; it and `gathers`, which a store with shards needs, must outlive the optimizer. All
  /// state of its own is 0: initialize(), or read it.
  Optimizer(const ParameterStore& store, const OptimizerSettings& settings, Device& device, Ops& ops,
            ParameterAllGather* gathers = nullptr);

  /// Sets master and values to their initial numbers, functions of (seed, name, element): the same model in every
  /// precision, but for the rounding of 16-bit values. Gradients become 0.
  void initialize(std::uint64_t seed);
  /// Sets values to the master, rounded, after the master was read from somewhere. Collective over the copies where
  /// there are shards.
  void set_values_from_master();

  struct Update {
    double loss = 0;           ///< summed over stages and data ranks
    double gradient_norm = 0;  ///< of the whole gradient of the loss (not scaled), before clipping
    bool skipped = false;   ///< a loss, the norm, or some rank's copy of a gradient was not finite: nothing was changed
    bool bad_loss = false;  ///< on some rank the loss was: then skipped, and no loss scale would have helped
  };
  /// One update from the store's gradients, which must be summed over all partial axes. Collective over the grid; the
  /// flags are the same on every rank. The device decides by itself whether to skip; what it decided is read once,
  /// while it updates.
  Update update(const ProcessGrid& grid, const UpdateSettings& settings);

  std::int64_t updates() const { return updates_; }  ///< successful ones: Adam's k
  void set_updates(std::int64_t updates) { updates_ = updates; }
  /// What this rank keeps the state of, in the buffers' order.
  const std::vector<FlatRange>& owned() const { return owned_; }
  /// State of a range that lies in one of these. All f32 [count]; m and v absent where the rule has none.
  struct State {
    Tensor master, m, v;
  };
  State state(const FlatRange& range) const;
  Tensor m() const { return m_; }  ///< f32, all ranges one after the other; absent where the rule has none
  Tensor v() const { return v_; }  ///< as m
  Tensor master_copy() const { return master_copy_; }  ///< as m; absent where f32 values are the master
  std::size_t state_bytes() const { return memory_.bytes() + scalars_.bytes(); }

  /// Bytes of optimizer state of a rank of the copies, the norm and its like included, for a store that is allocated
  /// (or planned).
  static std::size_t state_bytes(const ParameterStore& store, int shard, const OptimizerSettings& settings);

 private:
  /// A maximal part of an owned range with one property.
  struct Part {
    FlatRange range;
    bool decay;
  };

  /// Summed over all ranks by one collective over the model and one over the copies. Finite where every rank's are.
  struct StepSums {
    double square_sum;         ///< of owned gradients
    double copies_square_sum;  ///< of the others that a rank computed itself
    double loss;               ///< of one tensor rank
    double losses;             ///< of every rank that has one
  };
  /// What the host learns of an update; on the device as one block.
  struct Numbers {
    StepSums sums;
    float norm, skip;
  };
  static constexpr std::size_t kScalarBytes = 4 * 64;

  bool has_master_copy() const { return store_.values().dtype() != DType::f32; }
  void sum_up(const ProcessGrid& grid, ConstTensor loss);
  void decide(const UpdateSettings& settings);
  void update_range(std::size_t index, const UpdateSettings& settings);
  void update_part(const Part& part, const UpdateSettings& settings);
  void add_square_sum(const std::vector<FlatRange>& ranges, Tensor total);
  void publish(std::size_t index);

  const ParameterStore& store_;
  OptimizerSettings settings_;
  Device& device_;
  Ops& ops_;
  ParameterAllGather* gathers_;
  std::vector<FlatRange> owned_;
  std::vector<std::int64_t> positions_;   // of the owned ranges in m, v and the master copy
  std::vector<std::vector<Part>> parts_;  // of the owned ranges, by weight decay
  std::vector<FlatRange> in_norm_;        // what this rank counts in the norm, gaps included
  std::vector<FlatRange> copies_;         // what another tensor rank counts, of a gradient that both computed
  Buffer memory_, scalars_, numbers_here_;
  Tensor m_, v_, master_copy_;
  Tensor sums_;              // StepSums as f64 [4]
  Tensor model_square_sum_;  // f64 [1], of one model replica
  Tensor factor_, norm_, skip_, bad_loss_;
  Tensor zero_, unused_;
  std::int64_t updates_ = 0;
};

}  // namespace megatron

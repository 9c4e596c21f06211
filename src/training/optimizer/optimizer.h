// Optimizer: AdamW or SGD over a parameter store: moments, master copy, and this rank's part of the norm. Owns the
// moments and the master copy. Whether a step is skipped, and how it is clipped, is decided for all ranks at once
// (update_step.h). Knows parameters; must not know models or losses.
#pragma once

#include <string>
#include <vector>

#include "distributed/parallel/parameter.h"
#include "distributed/parallel/parameter_all_gather.h"

namespace megatron {

enum class UpdateRule { adamw, sgd };

/// The rule with the input file's name ("adamw", "sgd"). Errors: configuration.
UpdateRule update_rule(const std::string& name);

struct OptimizerSettings {
  UpdateRule rule = UpdateRule::adamw;
  double momentum = 0.9;  ///< for SGD; 0: none, and no memory for it
  double beta1 = 0.9, beta2 = 0.999, epsilon = 1e-8;
  double clip_norm = 1;  ///< 0: no clipping

  /// Numbers of state that the rule keeps for each value: m and v, m alone, or nothing.
  int moments() const { return rule == UpdateRule::adamw ? 2 : momentum != 0 ? 1 : 0; }
};

/// Numbers that may change at every step.
struct UpdateSettings {
  double learning_rate = 0;
  double weight_decay = 0;    ///< for parameters that decay: decoupled (AdamW), or L2 as a part of the gradient (SGD)
  double gradient_scale = 1;  ///< the store's gradients are the real ones times this
};

/// Owns m and v (SGD: m, its momentum, or none), and an f32 master copy of the values where these are 16-bit (where
/// they are f32 they are the master themselves). Each is flat, over the ranges of the store that this rank owns: all,
/// or with a store that is cut into shards (distributed optimizer, Rajbhandari et al. 2020, stage 1) its part of every
/// bucket. After an update values = the master, rounded; with shards their gathers are on their way.
class Optimizer {
 public:
  /// The store must be allocated; it and `gathers`, which a store with shards needs, must outlive the optimizer. All
  /// own state is 0: initialize(), or read it.
  Optimizer(const ParameterStore& store, const OptimizerSettings& settings, Device& device, Ops& ops,
            ParameterAllGather* gathers = nullptr);

  /// Sets master and values to their initial numbers, functions of (seed, name, element): the same model in every
  /// precision, but for the rounding of 16-bit values. Gradients become 0.
  void initialize(std::uint64_t seed);
  /// Sets values to the master, rounded, after the master was read from somewhere. Collective over the copies where
  /// there are shards.
  void set_values_from_master();

  /// Adds sums of squares of this rank's gradients, with their scale: of a copy group's parameters that it counts in
  /// the model's norm, and of all that another tensor rank counts and this one has computed itself. Both f64 [1].
  void add_counted_squares(CopyGroup group, Tensor total);
  void add_squares_of_copies(Tensor total);
  /// Adds the sum of squares of this rank's part of the masters that it counts in the model's norm. f64 [1].
  void add_counted_squares_of_masters(CopyGroup group, Tensor total);
  /// Until values that are on their way have arrived. Collective over the copies where there are shards.
  void wait_for_values();
  /// Gives the device an update from the store's gradients, which must be summed over all partial axes, and starts the
  /// values' gathers. The gradients are multiplied by `factor`; where `skip` is not 0 nothing changes. Both f32 [1],
  /// read when the device comes to it. An update that was not skipped must be told to count_update().
  void start_update(const UpdateSettings& settings, ConstTensor factor, ConstTensor skip);
  void count_update() { ++updates_; }

  std::int64_t updates() const { return updates_; }  ///< successful ones: Adam's k
  void set_updates(std::int64_t updates) { updates_ = updates; }
  /// The ranges whose state this rank keeps, in the buffers' order.
  const std::vector<FlatRange>& owned() const { return owned_; }
  /// State of a range that lies in one of these. All f32 [count]; m and v absent where the rule has none.
  struct State {
    Tensor master, m, v;
  };
  State state(const FlatRange& range) const;
  Tensor m() const { return m_; }  ///< f32, all ranges one after the other; absent where the rule has none
  Tensor v() const { return v_; }  ///< as m
  Tensor master_copy() const { return master_copy_; }  ///< as m; absent where f32 values are the master
  std::size_t state_bytes() const { return memory_.bytes(); }
  int moments() const { return settings_.moments(); }
  double clip_norm() const { return settings_.clip_norm; }
  bool sharded() const { return store_.sharded(); }

  /// Bytes of optimizer state of a rank, for a store that is allocated (or planned).
  static std::size_t state_bytes(const ParameterStore& store, Shard shard, const OptimizerSettings& settings);

 private:
  /// A maximal part of an owned range with one property.
  struct Part {
    FlatRange range;
    bool decay;
  };

  std::vector<FlatRange>& in_norm(CopyGroup group) { return group == CopyGroup::experts ? experts_in_norm_ : in_norm_; }
  bool has_master_copy() const { return store_.values().dtype() != DType::f32; }
  void update_part(const Part& part, const UpdateSettings& settings, ConstTensor factor, ConstTensor skip);
  void add_square_sum(const std::vector<FlatRange>& ranges, Tensor total);
  void publish(std::size_t index);

  const ParameterStore& store_;
  OptimizerSettings settings_;
  Ops& ops_;
  ParameterAllGather* gathers_;
  std::vector<FlatRange> owned_;
  std::vector<std::int64_t> positions_;   // where the owned ranges lie in m, v and the master copy
  std::vector<std::vector<Part>> parts_;  // the owned ranges, divided by weight decay
  std::vector<FlatRange> in_norm_;        // counted in the norm by this rank, gaps included, but for experts
  std::vector<FlatRange> experts_in_norm_;
  std::vector<FlatRange> copies_;  // counted by another tensor rank, in gradients that both computed
  Buffer memory_;
  Tensor m_, v_, master_copy_;
  std::int64_t updates_ = 0;
};

}  // namespace megatron

// UpdateRule: how an optimizer changes parameters, one row per rule. What other layers know of a rule is in the row of
// the same name in config/schema/update_rules.h.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

#include "backend/ops/ops.h"
#include "backend/tensor/memory.h"
#include "config/schema/config.h"
#include "distributed/parallel/parameter.h"

namespace megatron {

/// A rule's states in the order of its names. The others, and those that it does not keep, are absent.
using StateTensors = std::array<Tensor, Names{}.all.size()>;

/// One update of a range of elements. All tensors of it f32 [count], but for states in bf16.
struct UpdateArgs {
  Tensor value;  ///< the master's
  ConstTensor gradient;
  StateTensors states;
  StateDraws draws = {};    ///< used for states in bf16, which then are one parameter's
  ConstTensor clip_factor;  ///< f32 [1]: the gradient's factor
  ConstTensor skip;         ///< f32 [1]: not 0: nothing changes
  float learning_rate = 0;
  float weight_decay = 0;
  std::int64_t step = 1;  ///< updates so far, with this one
};

/// The update of a matrix by a rule that needs it whole, in three acts: the first and the last work on any part of it,
/// on the rank that holds that.
struct MatrixUpdate {
  /// Changes the states, and sets `direction`, f32 [count], from them and the gradient.
  void (*direct)(Ops& ops, Arena& scratch, const OptimizerConfig& config, const UpdateArgs& args, Tensor direction);
  /// Sets y to what the direction x of a whole matrix is made into. Both f32 [rows, columns]; x is worked in.
  void (*make_whole)(Ops& ops, Arena& scratch, Tensor x, Tensor y);
  /// Floating-point operations of that.
  double (*flops)(const Shape& shape);
  /// Changes the value along a part of y, which is in the gradient's place. `shape`: the whole matrix'.
  void (*apply)(Ops& ops, Arena& scratch, const OptimizerConfig& config, const UpdateArgs& args, const Shape& shape);
};

/// Has one of the two updates.
struct UpdateRule {
  std::string_view name;
  void (*update)(Ops& ops, const OptimizerConfig& config, const UpdateArgs& args) = nullptr;
  const MatrixUpdate* update_matrix = nullptr;
  bool (*is_stateless)(const OptimizerConfig& config) = nullptr;  ///< keeps none of its states; null: never

  /// The states that it keeps.
  Names states(const OptimizerConfig& config) const;
};

/// The rule of a parameter with these settings, which are its group's (parameter_groups.h): that of optimizer.name. One
/// that needs whole matrices has the hidden matrices, and AdamW all other parameters.
const UpdateRule& rule_of(const OptimizerConfig& config, const Parameter& parameter);

}  // namespace megatron

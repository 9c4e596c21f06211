// UpdateRule: how an optimizer changes parameters, one row per rule. What other layers know of a rule is in the row of
// the same name in config/schema/update_rules.h.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

#include "backend/ops/ops.h"
#include "config/schema/config.h"
#include "distributed/parallel/parameter.h"

namespace megatron {

/// A rule's states in the order of its names. The others, and those that it does not keep, are absent.
using StateTensors = std::array<Tensor, Names{}.all.size()>;

/// One update of a range of elements. All tensors of it f32 [count].
struct UpdateArgs {
  Tensor value;  ///< the master's
  ConstTensor gradient;
  StateTensors states;
  ConstTensor clip_factor;  ///< f32 [1]: the gradient's factor
  ConstTensor skip;         ///< f32 [1]: not 0: nothing changes
  float learning_rate = 0;
  float weight_decay = 0;
  std::int64_t step = 1;  ///< updates so far, with this one
};

struct UpdateRule {
  std::string_view name;
  void (*update)(Ops& ops, const OptimizerConfig& config, const UpdateArgs& args);
  bool (*is_stateless)(const OptimizerConfig& config) = nullptr;  ///< keeps none of its states; null: never

  /// The states that it keeps.
  Names states(const OptimizerConfig& config) const;
};

/// The rule of a parameter with these settings, which are its group's (parameter_groups.h): that of optimizer.name.
const UpdateRule& rule_of(const OptimizerConfig& config, const Parameter& parameter);

}  // namespace megatron

#include "training/optimizer/parameter_groups.h"

#include <algorithm>

#include "config/schema/parameter_groups.h"

namespace megatron {

double ParameterUpdate::weight_decay(double start, double now) const {
  const double own = settings->optimizer.weight_decay;
  if (!decays) return 0;
  if (own == start) return now;  // as [optimizer] has it, which may begin with 0
  return now == start ? own : own / start * now;
}

ParameterGroups::ParameterGroups(const OptimizerConfig& optimizer, const std::vector<ParameterGroupConfig>& groups)
    : groups_(groups) {
  for (const ParameterGroupConfig& group : groups_) {
    settings_.push_back({settings_of(optimizer, group), group.learning_rate_factor});
  }
  settings_.push_back({optimizer});
}

bool ParameterGroups::selects(std::size_t group, const Parameter& parameter) const {
  const auto& roles = groups_[group].roles;
  const auto& names = groups_[group].names;
  return (roles.empty() || std::find(roles.begin(), roles.end(), name_of(parameter.role)) != roles.end()) &&
         (names.empty() || std::any_of(names.begin(), names.end(),
                                       [&](const std::string& pattern) { return is_like(parameter.name, pattern); }));
}

std::size_t ParameterGroups::index_of(const Parameter& parameter) const {
  std::size_t group = 0;
  while (group < groups_.size() && !selects(group, parameter)) ++group;
  return group;
}

ParameterUpdate ParameterGroups::of(const Parameter& parameter) const {
  const std::size_t group = index_of(parameter);
  const GroupSettings& settings = settings_[group];
  const bool own_decay = group < groups_.size() && groups_[group].has_own("weight_decay");
  const bool decays = own_decay ? settings.optimizer.weight_decay > 0 : parameter.decays();
  return {&rule_of(settings.optimizer, parameter), &settings, decays};
}

}  // namespace megatron

#include "training/optimizer/parameter_groups.h"

#include <algorithm>
#include <cmath>

#include "config/schema/parameter_groups.h"

namespace megatron {

namespace {

double rate_power(const UpdateRule& rule, const OptimizerConfig& optimizer, const Parameter& parameter) {
  const UpdateRuleFacts& facts = row_named(kUpdateRules, rule.name);
  if (parameter.fixed_size) return 0;
  switch (parameter.role) {
    case Role::matrix:
      return facts.mup.matrices +
             (facts.keys.contains("muon_scale") ? row_named(kMuonScales, optimizer.muon_scale).rate_power : 0);
    case Role::router:
    case Role::task_head: return facts.mup.outputs;
    case Role::embedding:
    case Role::head:
    case Role::vector:
    case Role::norm: break;
  }
  return facts.mup.tables;
}

}  // namespace

double ParameterUpdate::weight_decay(double start, double now) const {
  const double own = settings->optimizer.weight_decay;
  if (!decays) return 0;
  // As [optimizer] has it, which may begin with 0, or in proportion.
  const double decay = own == start ? now : now == start ? own : own / start * now;
  return decay / width_factor;
}

ParameterGroups::ParameterGroups(const OptimizerConfig& optimizer, const std::vector<ParameterGroupConfig>& groups,
                                 double width_factor)
    : groups_(groups), width_factor_(width_factor) {
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
  const UpdateRule& rule = rule_of(settings.optimizer, parameter);
  return {&rule, &settings, decays, std::pow(width_factor_, rate_power(rule, settings.optimizer, parameter))};
}

}  // namespace megatron

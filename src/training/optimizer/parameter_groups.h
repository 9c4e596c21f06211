// ParameterGroups: how each parameter is updated, as [optimizer] and optimizer.groups say it. Everything that depends
// on a parameter's rule, or on its settings, asks here.
#pragma once

#include <vector>

#include "config/schema/config.h"
#include "distributed/parallel/parameter.h"
#include "training/optimizer/update_rules.h"

namespace megatron {

/// Settings that the parameters of a group have in common.
struct GroupSettings {
  OptimizerConfig optimizer;  ///< with the group's own values
  double learning_rate_factor = 1;

  bool operator==(const GroupSettings&) const = default;
};

/// How one parameter is updated. Must not outlive the ParameterGroups that it is from.
struct ParameterUpdate {
  const UpdateRule* rule;
  const GroupSettings* settings;
  bool decays;

  Names states() const { return rule->states(settings->optimizer); }
  /// Its weight decay where that of [optimizer] began with `start` and is now `now`.
  double weight_decay(double start, double now) const;
  bool operator==(const ParameterUpdate& other) const {
    return rule == other.rule && decays == other.decays && *settings == *other.settings;
  }
};

class ParameterGroups {
 public:
  ParameterGroups(const OptimizerConfig& optimizer, const std::vector<ParameterGroupConfig>& groups = {});
  explicit ParameterGroups(const Config& config) : ParameterGroups(config.optimizer, config.optimizer_groups) {}

  /// The first group that selects the parameter, by its number; the number of groups if none does.
  std::size_t index_of(const Parameter& parameter) const;
  bool selects(std::size_t group, const Parameter& parameter) const;
  ParameterUpdate of(const Parameter& parameter) const;
  DType state_type() const { return settings_.back().optimizer.moments(); }  ///< type of all states in memory
  /// The settings of each group; at the end those of all parameters that no group has.
  const std::vector<GroupSettings>& settings() const { return settings_; }
  const std::vector<ParameterGroupConfig>& groups() const { return groups_; }

 private:
  std::vector<ParameterGroupConfig> groups_;
  std::vector<GroupSettings> settings_;
};

}  // namespace megatron

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
  double width_factor;  ///< factor of the learning rate, by optimizer.scaling

  Names states() const { return rule->states(settings->optimizer); }
  /// Its group's, times that of the width.
  double learning_rate_factor() const { return settings->learning_rate_factor * width_factor; }
  /// Its weight decay where that of [optimizer] began with `start` and is now `now`. Without the width's factor of the
  /// learning rate, by which rules multiply it.
  double weight_decay(double start, double now) const;
  bool operator==(const ParameterUpdate& other) const {
    return rule == other.rule && decays == other.decays && width_factor == other.width_factor &&
           *settings == *other.settings;
  }
};

class ParameterGroups {
 public:
  /// `width_factor`: the model's, by which optimizer.scaling finds learning rates.
  ParameterGroups(const OptimizerConfig& optimizer = {}, const std::vector<ParameterGroupConfig>& groups = {},
                  double width_factor = 1);
  explicit ParameterGroups(const Config& config)
      : ParameterGroups(config.optimizer, config.optimizer_groups, config.model.width_factor()) {}

  /// The first group that selects the parameter, by its number; the number of groups if none does.
  std::size_t index_of(const Parameter& parameter) const;
  bool selects(std::size_t group, const Parameter& parameter) const;
  ParameterUpdate of(const Parameter& parameter) const;
  DType state_type() const { return settings_.back().optimizer.moments(); }  ///< type of all states in memory
  /// The settings of each group; at the end those of all parameters that no group has.
  const std::vector<GroupSettings>& settings() const { return settings_; }
  const std::vector<ParameterGroupConfig>& groups() const { return groups_; }
  /// [optimizer] itself.
  const OptimizerConfig& optimizer() const { return settings_.back().optimizer; }

 private:
  std::vector<ParameterGroupConfig> groups_;
  std::vector<GroupSettings> settings_;
  double width_factor_;
};

}  // namespace megatron

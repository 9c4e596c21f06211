#include "config/schema/parameter_groups.h"

#include <algorithm>

#include "config/schema/print.h"

namespace megatron {

std::vector<const Key*> group_keys() {
  std::vector<const Key*> keys;
  for (const Key& key : schema()) {
    if (key.table != "optimizer") continue;
    if (key.name == "name" || key.name == "weight_decay" || !update_rules_with(key.name).empty()) keys.push_back(&key);
  }
  return keys;
}

OptimizerConfig settings_of(const OptimizerConfig& optimizer, const ParameterGroupConfig& group) {
  Config own, result;
  own.optimizer = group.values;
  result.optimizer = optimizer;
  for (const std::string& key : group.keys) copy_value(*find_key("optimizer", key), own, result);
  return result.optimizer;
}

void derive_momentum(Config& config) {
  constexpr std::string_view kKey = "momentum";
  OptimizerConfig& optimizer = config.optimizer;
  if (optimizer.momentum) return;
  const double derived = optimizer.momentum_or_default();
  for (ParameterGroupConfig& group : config.optimizer_groups) {
    const OptimizerConfig own = settings_of(optimizer, group);
    const bool reads = row_named(kUpdateRules, own.name).keys.contains(kKey);
    if (!reads || group.has_own(kKey) || own.momentum_or_default() == derived) continue;
    group.values.momentum = own.momentum_or_default();
    group.keys.insert(std::lower_bound(group.keys.begin(), group.keys.end(), kKey), std::string(kKey));
  }
  optimizer.momentum = derived;
}

std::string selection_text(const ParameterGroupConfig& group) {
  std::string text = group.roles.empty() ? "" : "roles = " + print_texts(group.roles);
  if (!group.names.empty()) text += (text.empty() ? "names = " : ", names = ") + print_texts(group.names);
  return text;
}

bool is_like(std::string_view name, std::string_view pattern) {
  const std::size_t star = pattern.find('*');
  if (star == std::string_view::npos) return name == pattern;
  if (!name.starts_with(pattern.substr(0, star))) return false;
  name.remove_prefix(star);
  pattern.remove_prefix(star + 1);
  // Each part after a * is found as early as it can be, which leaves the most for those after it.
  while (true) {
    const std::size_t next = pattern.find('*');
    if (next == std::string_view::npos) return name.ends_with(pattern);
    const std::size_t at = name.find(pattern.substr(0, next));
    if (at == std::string_view::npos) return false;
    name.remove_prefix(at + next);
    pattern.remove_prefix(next + 1);
  }
}

}  // namespace megatron

#include "training/optimizer/optimizer_facts.h"

#include <fmt/ranges.h>

#include <algorithm>

#include "base/text/foreign_json.h"
#include "config/parse/set_value.h"
#include "config/schema/print.h"
#include "distributed/comm/agreement.h"
#include "training/optimizer/parameter_groups.h"

namespace megatron {

namespace {

constexpr std::size_t kLongestGroups = 1 << 20;  // characters
constexpr const char* kAdvice = "resume with the same, or start a new run with checkpoint.initialize_from";

/// The optimizer of a checkpoint, as far as it is a fact of it.
struct SavedOptimizer {
  Config config;
  bool said = false;  ///< false: a checkpoint that names none
};

SavedOptimizer saved_optimizer(const CheckpointReader& checkpoint) {
  SavedOptimizer saved;
  saved.config.optimizer.name = kUpdateRules.front().name;  // the rule of checkpoints that name none
  std::string groups;
  read_state(checkpoint, [&](const nlohmann::json& extra) {
    saved.said = extra.contains(kOptimizerKey);
    if (saved.said) saved.config.optimizer.name = text_at(extra, kOptimizerKey, 64);
    if (extra.contains(kGroupsKey)) groups = text_at(extra, kGroupsKey, kLongestGroups);
  });
  if (groups.empty()) return saved;
  const std::string problem = set_value(*find_key("optimizer", "groups"), groups, saved.config);
  verify(problem.empty(), ErrorKind::checkpoint, "{} was trained with groups of parameters that this program lacks: {}",
         checkpoint.path(), problem);
  return saved;
}

// "optimizer.name", or "optimizer.groups[1]", which `parameter` is in.
std::string place_of(const ParameterGroups& groups, const Parameter& parameter) {
  const std::size_t group = groups.index_of(parameter);
  return group < groups.groups().size() ? fmt::format("optimizer.groups[{}]", group) : "optimizer.name";
}

void require_same_update(const CheckpointReader& checkpoint, const ParameterGroups& then, const ParameterGroups& now,
                         const Parameter& parameter) {
  const auto stored = checkpoint.tensors().find(parameter.name);
  if (stored == checkpoint.tensors().end()) return;  // the reader will say so
  const std::vector<std::string>& saved = stored->second.states;
  const ParameterUpdate own = now.of(parameter);
  const Names kept = own.states();
  const std::vector<std::string> needed(kept.begin(), kept.end());
  const std::string_view rule = then.of(parameter).rule->name;
  verify(rule == own.rule->name || (saved.empty() && needed.empty()), ErrorKind::checkpoint,
         "{} was trained with {} = \"{}\" for {}, this run has \"{}\" by {}, which has no use for its state; {}",
         checkpoint.path(), place_of(then, parameter), rule, parameter.name, own.rule->name, place_of(now, parameter),
         kAdvice);
  const bool grouped = !now.groups().empty() || !then.groups().empty();
  verify(std::includes(saved.begin(), saved.end(), needed.begin(), needed.end()), ErrorKind::checkpoint,
         "{} has the optimizer's states [{}], and this run continues [{}]{}: it was trained with another value of "
         "optimizer.{}; {}",
         checkpoint.path(), fmt::join(saved, ", "), fmt::join(needed, ", "), grouped ? " of " + parameter.name : "",
         fmt::join(row_named(kUpdateRules, rule).keys, " or optimizer."), kAdvice);
}

}  // namespace

nlohmann::json optimizer_facts(const Config& config) {
  nlohmann::json facts = {{kOptimizerKey, config.optimizer.name}};
  if (!config.optimizer_groups.empty()) facts[kGroupsKey] = print_value(*find_key("optimizer", "groups"), config);
  return facts;
}

void require_same_optimizer(const CheckpointReader& checkpoint, const Config& config, const ParameterStore& store,
                            Communicator& world) {
  const SavedOptimizer saved = saved_optimizer(checkpoint);
  const std::string &then = saved.config.optimizer.name, &now = config.optimizer.name;
  const bool grouped = !config.optimizer_groups.empty() || !saved.config.optimizer_groups.empty();
  verify(then == now || (grouped && find_row(kUpdateRules, then) != nullptr), ErrorKind::checkpoint,
         "{} was trained with optimizer.name = \"{}\", this run has \"{}\", which has no use for its state; {}",
         checkpoint.path(), then, now, kAdvice);
  if (!saved.said) return;
  const ParameterGroups saved_groups(saved.config), own_groups(config);
  agree(world, [&] {
    for (const Parameter& parameter : store.all()) {
      require_same_update(checkpoint, saved_groups, own_groups, parameter);
    }
  });
}

}  // namespace megatron

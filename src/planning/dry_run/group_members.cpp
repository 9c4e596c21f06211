#include "planning/dry_run/group_members.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <set>

#include "base/text/text.h"
#include "config/schema/parameter_groups.h"
#include "training/optimizer/parameter_groups.h"
#include "training/step/declared_rank.h"

namespace megatron {

namespace {

struct Members {
  std::set<std::string_view> rules;
  std::int64_t selected = 0, tensors = 0, decaying = 0, elements = 0;
};

bool has_momentum(const Members& members) {
  return std::any_of(members.rules.begin(), members.rules.end(),
                     [](std::string_view rule) { return row_named(kUpdateRules, rule).keys.contains("momentum"); });
}

std::string describe(const GroupSettings& settings, const Members& members) {
  std::string text = fmt::format("{}, ", fmt::join(members.rules, " and "));
  if (has_momentum(members)) text += fmt::format("momentum {}, ", settings.optimizer.momentum_or_default());
  if (settings.learning_rate_factor != 1) text += fmt::format("{} × learning rate, ", settings.learning_rate_factor);
  if (members.decaying == 0 || settings.optimizer.weight_decay == 0) {
    text += "no weight decay";
  } else {
    text += fmt::format("weight decay {}", settings.optimizer.weight_decay);
    if (members.decaying < members.tensors) text += fmt::format(" of {}", members.decaying);
  }
  return text + fmt::format(", {}, {}", counted(members.tensors, "tensor"), counted(members.elements, "element"));
}

void require_tensors(const ParameterGroupConfig& group, std::size_t index, const Members& members) {
  verify(members.selected > 0, ErrorKind::configuration,
         "optimizer.groups[{}] selects no parameter of the model: {}; --parameters lists their names and roles", index,
         selection_text(group));
  verify(members.tensors > 0, ErrorKind::configuration,
         "optimizer.groups[{}] has no parameter: groups before it select all of {}; move it in front of them, or leave "
         "it out",
         index, selection_text(group));
}

}  // namespace

std::string describe_groups(const Config& config) {
  if (config.optimizer_groups.empty()) return "";
  const ParameterGroups groups(config);
  std::vector<Members> members(groups.settings().size());
  const DeclaredRank model(on_one_rank(config), 0);
  for (const Parameter& parameter : model.store.all()) {
    for (std::size_t i = 0; i < groups.groups().size(); ++i) members[i].selected += groups.selects(i, parameter);
    Members& its = members[groups.index_of(parameter)];
    const ParameterUpdate how = groups.of(parameter);
    its.rules.insert(how.rule->name);
    ++its.tensors;
    its.decaying += how.decays;
    its.elements += parameter.global_shape.elements();
  }
  std::string text;
  for (std::size_t i = 0; i < groups.groups().size(); ++i) {
    const ParameterGroupConfig& group = groups.groups()[i];
    require_tensors(group, i, members[i]);
    text += fmt::format("group {}   {}: {}\n", i, selection_text(group), describe(groups.settings()[i], members[i]));
  }
  if (members.back().tensors > 0) text += "no group  " + describe(groups.settings().back(), members.back()) + "\n";
  return text;
}

}  // namespace megatron

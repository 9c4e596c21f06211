#include "config/parse/read_parameter_groups.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cmath>

#include "base/core/role.h"
#include "config/parse/read_value.h"
#include "config/schema/constraints.h"
#include "config/schema/parameter_groups.h"
#include "config/schema/suggestions.h"

namespace megatron {
namespace {

constexpr double kLargestFactor = 1e6;

/// One table of the list; `problem` is the first thing that is wrong in it.
class GroupReader {
 public:
  explicit GroupReader(std::string place) : place_(std::move(place)) {}

  const std::string& problem() const { return problem_; }

  ParameterGroupConfig read(const toml::node& node) {
    ParameterGroupConfig group;
    if (!node.is_table()) {
      set("", fmt::format("expected table {{roles = [\"...\"], ...}}, got {}", type_name(node)));
      return group;
    }
    for (auto&& [key, value] : *node.as_table()) read_member(std::string(key.str()), value, group);
    if (group.roles.empty() && group.names.empty()) set("", "needs roles or names, which say what it is a group of");
    return group;
  }

 private:
  void set(const std::string& member, const std::string& problem) {
    if (problem_.empty()) problem_ = fmt::format("{}{}: {}", place_, member, problem);
  }

  void read_member(const std::string& name, const toml::node& value, ParameterGroupConfig& group) {
    std::vector<std::string> members = {"roles", "names", "learning_rate_factor"};
    for (const Key* key : group_keys()) members.emplace_back(key->name);
    if (name == "roles") {
      read_texts(value, ".roles", group.roles);
      check_roles(group.roles);
    } else if (name == "names") {
      read_texts(value, ".names", group.names);
    } else if (name == "learning_rate_factor") {
      read_factor(value, group.learning_rate_factor);
    } else if (std::find(members.begin(), members.end(), name) != members.end()) {
      read_own_value(name, value, group);
    } else {
      const std::string near = suggest_choice(name, members);
      set("", fmt::format("unknown key '{}'; {}", name,
                          near.empty() ? fmt::format("a group has {}", fmt::join(members, ", "))
                                       : fmt::format("did you mean '{}'?", near)));
    }
  }

  /// By the key's own row, under the group's name.
  void read_own_value(const std::string& name, const toml::node& value, ParameterGroupConfig& group) {
    Key key = *find_key("optimizer", name);
    key.table = place_;
    Config config;
    config.optimizer = group.values;
    const std::string problem = read_value(value, key, config);
    if (problem_.empty()) problem_ = problem;
    group.values = config.optimizer;
    group.keys.push_back(name);
  }

  void read_texts(const toml::node& node, const std::string& member, std::vector<std::string>& to) {
    const toml::array* const texts = node.as_array();
    if (texts == nullptr) return set(member, fmt::format("expected array of strings, got {}", type_name(node)));
    for (const toml::node& text : *texts) {
      to.push_back(text.value_exact<std::string>().value_or(""));
      const std::string place = fmt::format("{}[{}]", member, to.size() - 1);
      if (!text.is_string()) return set(place, fmt::format("expected string, got {}", type_name(text)));
      if (to.back().empty()) return set(place, "is empty");
    }
  }

  void check_roles(const std::vector<std::string>& roles) {
    const std::vector<std::string> choices = names_of(kRoles);
    for (std::size_t i = 0; i < roles.size(); ++i) {
      if (find_row(kRoles, roles[i]) != nullptr) continue;
      const std::string near = suggest_choice(roles[i], choices);
      set(fmt::format(".roles[{}]", i),
          fmt::format("\"{}\" is not one of \"{}\"{}", roles[i], fmt::join(choices, "\", \""),
                      near.empty() ? "" : fmt::format("; did you mean \"{}\"?", near)));
    }
  }

  void read_factor(const toml::node& node, double& factor) {
    const Constraint constraint = constraints::in_fp32(constraints::from_to(0, kLargestFactor));
    const std::string member = ".learning_rate_factor";
    if (!node.is_number()) return set(member, fmt::format("expected number, got {}", type_name(node)));
    factor = *node.value<double>();
    if (!(factor >= constraint.minimum && factor <= constraint.maximum)) {
      return set(member, fmt::format("{} is out of range: {}", factor, range_text(constraint)));
    }
    const std::string lost = lost_in_use(constraint, factor);
    if (!lost.empty()) set(member, fmt::format("{} {}", factor, lost));
  }

  const std::string place_;
  std::string problem_;
};

}  // namespace

std::string read_parameter_groups(const toml::array& entries, const std::string& key,
                                  std::vector<ParameterGroupConfig>& field) {
  std::vector<ParameterGroupConfig> groups;
  for (const toml::node& node : entries) {
    GroupReader reader(fmt::format("{}[{}]", key, groups.size()));
    groups.push_back(reader.read(node));
    if (!reader.problem().empty()) return reader.problem();
  }
  field = std::move(groups);
  return "";
}

}  // namespace megatron

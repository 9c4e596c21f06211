// The rule of all keys that need another key to have one of some values: the schema says which do.
#include <algorithm>

#include "config/rules/violations.h"
#include "config/schema/schema.h"

namespace megatron {

void check_needs(const Config& c, Violations& violations) {
  Config given = c, defaults;
  // Resolved files have it with every rule, and a file whose rule is changed has the former rule's default.
  if (std::any_of(std::begin(kUpdateRules), std::end(kUpdateRules),
                  [&](const auto& rule) { return rule.momentum == given.optimizer.momentum; })) {
    defaults.optimizer.momentum = given.optimizer.momentum;
  }
  const auto text_of = [&](std::string_view full_name) -> const std::string& {
    const auto dot = full_name.find('.');
    const Key* const key = find_key(full_name.substr(0, dot), full_name.substr(dot + 1));
    internal_check(key != nullptr, "a need of the schema names a key");
    return std::get<Access<std::string>>(key->access)(given);
  };
  for (const Key& key : schema()) {
    for (const Need& need : key.constraint.needs) {
      const bool asks =
          need.of_value.empty() ? differs(key, given, defaults) : text_of(key.full_name()) == need.of_value;
      if (!asks) continue;
      const std::string& value = text_of(need.key);
      if (std::find(need.values.begin(), need.values.end(), value) != need.values.end()) continue;
      violations.add({key.full_name(), std::string(need.key)}, "{}{} belongs to {} = {}, {}", key.full_name(),
                     need.of_value.empty() ? "" : fmt::format(" = \"{}\"", need.of_value), need.key,
                     one_of_text(need.values), value.empty() ? "which is not set" : fmt::format("not \"{}\"", value));
    }
  }
}

}  // namespace megatron

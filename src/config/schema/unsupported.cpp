#include "config/schema/unsupported.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <string>
#include <vector>

#include "base/core/error.h"
#include "config/schema/print.h"
#include "config/schema/schema.h"

namespace megatron {
namespace {

constexpr Unsupported kUnsupported[] = {
    {"parallel.context", true, "above 1 with evaluation.tasks",
     [](const Config& c) { return c.parallel.context > 1 && !c.evaluation.tasks.empty(); }},
};

std::string value_of(std::string_view full_name, const Config& config) {
  const auto dot = full_name.find('.');
  const Key* key = find_key(full_name.substr(0, dot), full_name.substr(dot + 1));
  internal_check(key != nullptr, "a row of the unsupported features names a key of the schema");
  return print_value(*key, config);
}

}  // namespace

std::span<const Unsupported> unsupported_features() {
  return kUnsupported;
}

void reject_unsupported_keys(const Config& config) {
  std::vector<std::string> lines;
  for (const Unsupported& feature : kUnsupported) {
    if (!feature.asked_for(config)) continue;
    lines.push_back(fmt::format("{} = {} ({}) is not supported for training yet; only --dry-run plans it", feature.key,
                                value_of(feature.key, config), feature.what));
  }
  if (!lines.empty()) fail(ErrorKind::configuration, "{}", fmt::join(lines, "\n"));
}

}  // namespace megatron

// Differences between configurations of a run, as config.toml has them. Works on the text, so that configurations of
// other versions can be compared too.
#pragma once

#include <string>
#include <vector>

namespace megatron {

/// A key with its value in each of the texts; "not set" where one has none.
struct ChangedKey {
  std::string key;
  std::vector<std::string> values;
};

/// The keys whose values are not the same in all texts, in the order of the first that has them.
std::vector<ChangedKey> changed_between(const std::vector<std::string>& configs);

}  // namespace megatron

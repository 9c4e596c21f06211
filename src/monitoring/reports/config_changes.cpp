#include "monitoring/reports/config_changes.h"

#include <algorithm>
#include <sstream>
#include <unordered_map>

namespace megatron {

std::vector<ChangedKey> changed_between(const std::vector<std::string>& configs) {
  std::vector<ChangedKey> keys;
  std::unordered_map<std::string, std::size_t> places;
  for (std::size_t i = 0; i < configs.size(); ++i) {
    std::istringstream stream(configs[i]);
    std::string table;
    for (std::string line; std::getline(stream, line);) {
      const auto equals = line.find(" = ");
      if (line.starts_with('[')) {
        table = line.substr(1, line.find(']') - 1) + ".";
      } else if (equals != std::string::npos) {
        const std::string key = table + line.substr(0, equals);
        const auto [place, is_new] = places.emplace(key, keys.size());
        if (is_new) keys.push_back({key, std::vector<std::string>(configs.size(), "not set")});
        keys[place->second].values[i] = line.substr(equals + 3);
      }
    }
  }
  std::erase_if(keys, [](const ChangedKey& key) {
    return std::all_of(key.values.begin(), key.values.end(),
                       [&](const std::string& value) { return value == key.values.front(); });
  });
  return keys;
}

}  // namespace megatron

// Whether a text has a part, and how often, for tests of what programs said and wrote.
#pragma once

#include <string>

namespace megatron::test {

inline bool has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

/// Occurrences; overlapping ones count separately.
inline int times_in(const std::string& text, const std::string& part) {
  int count = 0;
  for (std::size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++count;
  return count;
}

}  // namespace megatron::test

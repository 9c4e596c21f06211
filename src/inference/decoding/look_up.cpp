#include "inference/decoding/look_up.h"

#include <algorithm>

namespace megatron {

std::vector<std::int32_t> look_up(std::span<const std::int32_t> text, std::int64_t count) {
  if (count <= 0) return {};
  for (std::size_t length = std::min<std::size_t>(3, text.size()); length > 0; --length) {
    const auto last = text.last(length);
    // An occurrence may overlap the last one, but not be it.
    const auto found = std::find_end(text.begin(), text.end() - 1, last.begin(), last.end());
    if (found == text.end() - 1) continue;
    std::vector<std::int32_t> guesses;
    for (auto next = static_cast<std::size_t>(found - text.begin()) + length; count > 0; --count, ++next) {
      guesses.push_back(next < text.size() ? text[next] : guesses[next - text.size()]);
    }
    return guesses;
  }
  return {};
}

}  // namespace megatron

#include "config/schema/split.h"

#include <algorithm>
#include <charconv>

namespace megatron {

namespace {

constexpr double kLargestShare = 1e15;

std::string_view trimmed(std::string_view word) {
  while (!word.empty() && word.front() == ' ') word.remove_prefix(1);
  while (!word.empty() && word.back() == ' ') word.remove_suffix(1);
  return word;
}

}  // namespace

std::optional<std::array<double, 3>> parse_split(std::string_view text) {
  std::array<double, 3> shares{};
  double sum = 0;
  for (std::size_t part = 0;; ++part) {
    const std::size_t end = std::min(text.find_first_of(",/"), text.size());
    const std::string_view word = trimmed(text.substr(0, end));
    double share = -1;
    const auto [stop, error] = std::from_chars(word.data(), word.data() + word.size(), share);
    const bool number = error == std::errc() && stop == word.data() + word.size() && share >= 0;
    if (part == shares.size() || !number || share > kLargestShare) return std::nullopt;
    sum += shares[part] = share;
    if (end == text.size()) break;
    text.remove_prefix(end + 1);
  }
  if (sum == 0) return std::nullopt;
  return shares;
}

}  // namespace megatron

#include "config/rules/violations.h"

#include <fmt/ranges.h>

#include <algorithm>

namespace megatron {

std::string divisors(std::int64_t n, std::int64_t near) {
  std::vector<std::int64_t> all;
  for (std::int64_t d = 1; d <= n / d; ++d) {
    if (n % d != 0) continue;
    all.push_back(d);
    if (d != n / d) all.push_back(n / d);
  }
  std::sort(all.begin(), all.end());
  constexpr std::size_t kShown = 12;
  if (all.size() <= kShown) return fmt::format("{}", fmt::join(all, ", "));
  const auto at = static_cast<std::size_t>(std::lower_bound(all.begin(), all.end(), near) - all.begin());
  const std::size_t first = std::min(at < kShown / 2 ? 0 : at - kShown / 2, all.size() - kShown);
  const std::vector<std::int64_t> shown(all.begin() + static_cast<std::ptrdiff_t>(first),
                                        all.begin() + static_cast<std::ptrdiff_t>(first + kShown));
  return fmt::format("{}{}{}", first > 0 ? "..., " : "", fmt::join(shown, ", "),
                     first + kShown < all.size() ? ", ..." : "");
}

std::string multiples_around(std::int64_t n, std::int64_t m) {
  const std::int64_t below = n / m * m;
  return below > 0 ? fmt::format("{}, {}", below, below + m) : fmt::format("{}", m);
}

}  // namespace megatron

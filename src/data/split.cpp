#include "data/split.h"

#include <algorithm>
#include <charconv>
#include <cmath>

#include "base/error.h"

namespace megatron {

namespace {

/// Half to even, whatever the rounding mode: 0.5 -> 0, 1.5 -> 2.
double round_half_even(double value) {
  const double floor = std::floor(value), rest = value - floor;
  if (rest != 0.5) return rest < 0.5 ? floor : floor + 1;
  return std::fmod(floor, 2) == 0 ? floor : floor + 1;
}

}  // namespace

std::array<double, 3> parse_split(std::string_view text) {
  const auto wrong = [text] {
    fail(ErrorKind::configuration,
         "split \"{}\": write up to three weights like \"969,30,1\" (training, validation, test)", text);
  };
  std::array<double, 3> weights{};
  std::size_t part = 0;
  double sum = 0;
  std::string_view rest = text;
  while (true) {
    const std::size_t end = std::min(rest.find_first_of(",/"), rest.size());
    std::string_view word = rest.substr(0, end);
    while (!word.empty() && word.front() == ' ') word.remove_prefix(1);
    while (!word.empty() && word.back() == ' ') word.remove_suffix(1);
    double weight = 0;
    const auto [stop, error] = std::from_chars(word.data(), word.data() + word.size(), weight);
    const bool number = error == std::errc() && stop == word.data() + word.size() && weight >= 0 && weight <= 1e15;
    if (!number || part == weights.size()) wrong();
    weights[part++] = weight;
    sum += weight;
    if (end == rest.size()) break;
    rest.remove_prefix(end + 1);
  }
  if (!(sum > 0)) wrong();
  return weights;
}

std::array<std::uint64_t, 4> split_documents(std::uint64_t documents, const std::array<double, 3>& weights) {
  const double sum = weights[0] + weights[1] + weights[2];
  std::array<std::int64_t, 4> boundary{};
  for (std::size_t part = 0; part < 3; ++part) {
    const double share = round_half_even(weights[part] / sum * static_cast<double>(documents));
    boundary[part + 1] = boundary[part] + static_cast<std::int64_t>(share);
  }
  // The last boundary must be the number of documents: what rounding gave too much or too little is taken from all.
  const auto total = static_cast<std::int64_t>(documents);
  const std::int64_t surplus = boundary[3] - total;
  std::array<std::uint64_t, 4> result{};
  for (std::size_t i = 1; i < 4; ++i) {
    result[i] = static_cast<std::uint64_t>(std::clamp<std::int64_t>(boundary[i] - surplus, 0, total));
  }
  return result;
}

}  // namespace megatron

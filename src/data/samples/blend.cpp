#include "data/samples/blend.h"

#include <algorithm>
#include <cmath>

#include "base/core/error.h"

namespace megatron {

namespace {

constexpr std::uint64_t kMark = 1 << 16;

/// numpy.sum of doubles: in the order in which it adds, which decides about the last bit.
double numpy_sum(std::span<const double> values) {
  constexpr std::size_t kLanes = 8, kBlock = 128;
  if (values.size() > kBlock) {
    const std::size_t half = values.size() / 2 / kLanes * kLanes;
    return numpy_sum(values.first(half)) + numpy_sum(values.subspan(half));
  }
  double sum = 0;
  std::size_t i = 0;
  if (values.size() >= kLanes) {
    double lane[kLanes];
    for (; i < kLanes; ++i) lane[i] = values[i];
    for (; i + kLanes <= values.size(); i += kLanes) {
      for (std::size_t j = 0; j < kLanes; ++j) lane[j] += values[i + j];
    }
    sum = ((lane[0] + lane[1]) + (lane[2] + lane[3])) + ((lane[4] + lane[5]) + (lane[6] + lane[7]));
  }
  for (; i < values.size(); ++i) sum += values[i];
  return sum;
}

std::vector<double> weights_of(const std::vector<BlendedOrder::Part>& parts) {
  std::vector<double> weights;
  for (const BlendedOrder::Part& part : parts) weights.push_back(part.weight);
  return weights;
}

std::int64_t sequence_length_of(const std::vector<BlendedOrder::Part>& parts) {
  internal_check(!parts.empty(), "a blend of no sets");
  for (const BlendedOrder::Part& part : parts) {
    internal_check(part.order->sequence_length() == parts[0].order->sequence_length(), "a blend of two lengths",
                   part.order->sequence_length(), parts[0].order->sequence_length());
  }
  return parts[0].order->sequence_length();
}

}  // namespace

std::vector<double> normalised_weights(std::vector<double> weights) {
  double sum = 0;
  for (const double weight : weights) sum += weight;
  internal_check(sum > 0 && std::isfinite(sum), "weights of a blend without a sum", sum);
  for (double& weight : weights) weight /= sum;
  return weights;
}

std::uint64_t blend_samples(double weight, std::uint64_t samples) {
  return static_cast<std::uint64_t>(std::ceil(static_cast<double>(samples) * weight * 1.005));
}

std::vector<double> numpy_normalised_weights(std::vector<double> weights) {
  const double sum = numpy_sum(weights);
  internal_check(sum > 0 && std::isfinite(sum), "weights of a blend without a sum", sum);
  for (double& weight : weights) weight /= sum;
  return weights;
}

std::uint64_t core_blend_samples(double weight, std::uint64_t samples) {
  return static_cast<std::uint64_t>(std::ceil(std::ceil(static_cast<double>(samples) * weight) * (1 + 0.005)));
}

BlendIndex::BlendIndex(const std::vector<double>& weights)
    : weights_(numpy_normalised_weights(weights)),  // once more, as Megatron does
      given_(weights.size()) {}

/// This file is compiled without fused multiplication and addition: rounding twice decides between equals.
std::size_t BlendIndex::choose() const {
  const double place = std::max(static_cast<double>(next_), 1.0);
  std::size_t best = 0;
  double most = weights_[0] * place - given_[0];
  for (std::size_t set = 1; set < weights_.size(); ++set) {
    const double missing = weights_[set] * place - given_[set];
    if (missing > most) {
      most = missing;
      best = set;
    }
  }
  return best;
}

void BlendIndex::step() const {
  if (next_ % kMark == 0 && marks_.size() == next_ / kMark * given_.size()) {
    marks_.insert(marks_.end(), given_.begin(), given_.end());
  }
  given_[choose()] += 1;
  ++next_;
}

/// Takes the counts from the last mark before the sample, if they have not passed it yet.
void BlendIndex::go_to_mark(std::uint64_t sample) const {
  const std::uint64_t passed = marks_.size() / given_.size();
  const std::uint64_t mark = std::min(sample / kMark, passed == 0 ? 0 : passed - 1);
  if (passed == 0 || (sample >= next_ && mark * kMark <= next_)) return;
  std::copy_n(marks_.begin() + static_cast<std::ptrdiff_t>(mark * given_.size()), given_.size(), given_.begin());
  next_ = mark * kMark;
}

BlendIndex::SetSample BlendIndex::at(std::uint64_t sample) const {
  const std::lock_guard lock(mutex_);
  go_to_mark(sample);
  while (next_ < sample) step();
  const std::size_t set = choose();
  return {set, static_cast<std::uint64_t>(given_[set])};
}

BlendedOrder::BlendedOrder(std::vector<Part> parts, std::uint64_t samples)
    : SampleOrder(sequence_length_of(parts)),
      parts_(std::move(parts)),
      weights_(weights_of(parts_)),
      index_(weights_),
      samples_(samples) {}

void BlendedOrder::locate(std::uint64_t sample, std::vector<TokenRange>& ranges) const {
  const auto [set, own] = index_.at(sample);
  const Part& part = parts_[set];
  part.order->locate(own, ranges);
  for (TokenRange& range : ranges) range.first += part.first_token;
}

std::string BlendedOrder::description() const {
  std::string text = fmt::format("a blend of {} sets", parts_.size());
  for (std::size_t i = 0; i < parts_.size(); ++i) {
    text += fmt::format("{} {:.4g} % {} ({})", i == 0 ? ":" : ",", 100 * weights_[i], parts_[i].name,
                        parts_[i].order->description());
  }
  return text;
}

}  // namespace megatron

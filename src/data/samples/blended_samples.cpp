#include "data/samples/blended_samples.h"

#include <utility>

#include "base/core/error.h"

namespace megatron {

namespace {

std::vector<double> weights_of(const std::vector<BlendedSamples::Part>& parts) {
  internal_check(!parts.empty(), "a blend of no sets");
  std::vector<double> weights;
  for (const BlendedSamples::Part& part : parts) {
    internal_check(part.samples->terms() == parts[0].samples->terms(), "a blend of samples with other losses");
    weights.push_back(part.weight);
  }
  return weights;
}

}  // namespace

BlendedSamples::BlendedSamples(std::vector<Part> parts, std::uint64_t samples)
    : parts_(std::move(parts)), index_(weights_of(parts_)), samples_(samples) {}

std::string BlendedSamples::description() const {
  std::string text = fmt::format("a blend of {} sets", parts_.size());
  for (const Part& part : parts_) {
    text += fmt::format("{} {:.4g} % {} ({})", &part == parts_.data() ? ":" : ",", 100 * part.weight, part.name,
                        part.samples->description());
  }
  return text;
}

void BlendedSamples::make(std::uint64_t sample, const SampleColumn& to, std::span<double> counts) {
  const BlendIndex::SetSample place = index_.at(sample);
  parts_[place.set].samples->make(place.sample, to, counts);
}

std::optional<double> BlendedSamples::count_per_sample(const BatchSizes& sizes) const {
  const std::optional<double> count = parts_[0].samples->count_per_sample(sizes);
  for (const Part& part : parts_) {
    if (part.samples->count_per_sample(sizes) != count) return std::nullopt;
  }
  return count;
}

std::vector<NamedTokens> BlendedSamples::show(std::uint64_t sample) {
  const BlendIndex::SetSample place = index_.at(sample);
  return parts_[place.set].samples->show(place.sample);
}

}  // namespace megatron

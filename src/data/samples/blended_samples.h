// BlendedSamples: samples of several sets mixed by weight (blend.h), each with its own samples. For samples that
// are not ranges of tokens; those that are have BlendedOrder.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "data/samples/blend.h"
#include "data/samples/samples.h"

namespace megatron {

class BlendedSamples final : public Samples {
 public:
  struct Part {
    std::unique_ptr<Samples> samples;
    double weight = 1;  ///< all parts' are normalised
    std::string name;   ///< for description()
  };
  /// At least one part; all have the same terms of the loss. `samples` is what samples() says, as in BlendedOrder.
  BlendedSamples(std::vector<Part> parts, std::uint64_t samples);

  std::uint64_t samples() const override { return samples_; }
  std::string description() const override;
  std::size_t terms() const override { return parts_[0].samples->terms(); }
  void make(std::uint64_t sample, const SampleColumn& to, std::span<double> counts) override;
  /// Nothing unless it is the same for all parts.
  std::optional<double> count_per_sample(const BatchSizes& sizes) const override;
  std::vector<NamedTokens> show(std::uint64_t sample) override;

 private:
  std::vector<Part> parts_;
  BlendIndex index_;
  std::uint64_t samples_;
};

}  // namespace megatron

// Blends: which set each sample of a run is taken from, when several are mixed by weight, as Megatron-LM mixes them.
// After n samples each set d has given w_d · n, its normalised weight times n, to within one or two, and a longer run
// begins with what a shorter one saw.
#pragma once

#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "data/samples/sample_order.h"

namespace megatron {

/// Divided by their sum, added up from the first on.
std::vector<double> normalised_weights(std::vector<double> weights);

/// The same by megatron-core: divided by numpy's sum, which may add in another order.
std::vector<double> numpy_normalised_weights(std::vector<double> weights);

/// The samples that Megatron-LM of 2022 asks a set of this normalised weight for, so that a blend has `samples` for
/// sure: half a percent more than its share.
std::uint64_t blend_samples(double weight, std::uint64_t samples);
/// The same by megatron-core, which rounds the share up before it adds the half percent.
std::uint64_t core_blend_samples(double weight, std::uint64_t samples);

/// Sample i is of the set d of which, by its share, most samples are missing: that with the largest
///
///   w_d · max(i, 1) - (samples of d so far)          weights normalised; the first of equal sets
///
/// and is the next sample of d in d's own order. All counts are 64-bit.
///
/// Megatron keeps two arrays of this over the whole run, the set's number in 8 bits. Nothing is stored here but the
/// counts at every 65536th sample that was passed: the samples between are counted again where they are asked for, at a
/// few nanoseconds per set and sample.
///
/// Thread-safe. Asking in rising order is cheap, going back costs 65536 samples at most.
class BlendIndex {
 public:
  /// Normalised weights of at least one set.
  explicit BlendIndex(const std::vector<double>& weights);

  struct SetSample {
    std::size_t set;
    std::uint64_t sample;  ///< in that set's order
    bool operator==(const SetSample&) const = default;
  };
  SetSample at(std::uint64_t sample) const;

 private:
  std::size_t choose() const;
  void step() const;
  void go_to_mark(std::uint64_t sample) const;

  std::vector<double> weights_;
  mutable std::mutex mutex_;
  mutable std::uint64_t next_ = 0;     // the sample to be chosen next
  mutable std::vector<double> given_;  // each set's samples before it; whole numbers, as the choice compares them
  mutable std::vector<double> marks_;  // given_ at every kMark-th sample passed so far
};

/// The order of a blend, over the tokens of all sets one after the other.
class BlendedOrder final : public SampleOrder {
 public:
  struct Part {
    std::unique_ptr<const SampleOrder> order;
    std::uint64_t first_token = 0;  ///< the set's first one among all
    double weight = 1;              ///< all parts' are normalised
    std::string name;               ///< for description()
  };
  /// `samples` is what samples() says: see there.
  BlendedOrder(std::vector<Part> parts, std::uint64_t samples);

  /// For sets that begin again after their last sample: as many as all have together, which is called a pass. For
  /// MegatronOrder: as many as were wanted.
  std::uint64_t samples() const override { return samples_; }
  void locate(std::uint64_t sample, std::vector<TokenRange>& ranges) const override;
  std::string description() const override;

 private:
  std::vector<Part> parts_;
  std::vector<double> weights_;
  BlendIndex index_;
  std::uint64_t samples_;
};

}  // namespace megatron

// SampleOrder: which tokens the i-th sample of a run is made of. A pure function; there is no index file and no state.
//
// A range of T tokens holds (T - 1) / s samples of s + 1 tokens; neighbours share one token, and samples run across the
// ends of documents. Sample i of the run is in epoch i / samples_per_epoch; every epoch visits all samples once, in an
// order that depends on (seed, epoch) alone. So a longer run begins with exactly what a shorter one saw.
#pragma once

#include <cstdint>

namespace megatron {

/// A bijection of [0, size) onto itself for any key: a Feistel network on the next even power of two, walked until it
/// lands inside. Costs a few Philox calls.
std::uint64_t permute(std::uint64_t index, std::uint64_t size, std::uint64_t key);

class SampleOrder {
 public:
  enum class Kind { shuffled, sequential };  ///< sequential: for evaluation

  /// Over the tokens [first_token, first_token + tokens). ErrorKind::data if they do not make one sample.
  SampleOrder(std::uint64_t first_token, std::uint64_t tokens, std::int64_t sequence_length, std::uint64_t seed,
              Kind kind);

  std::int64_t sequence_length() const { return static_cast<std::int64_t>(sequence_length_); }
  std::uint64_t samples_per_epoch() const { return samples_per_epoch_; }
  std::uint64_t epoch_of(std::uint64_t sample) const { return sample / samples_per_epoch_; }
  /// The first of the sequence_length + 1 tokens of a sample (index over the whole run).
  std::uint64_t first_token_of(std::uint64_t sample) const;

 private:
  std::uint64_t first_token_, sequence_length_, samples_per_epoch_, seed_;
  Kind kind_;
};

}  // namespace megatron

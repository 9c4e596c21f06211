// SampleOrder: which tokens the i-th sample of a run is made of. A pure function of what it was made with; there is no
// index file. EpochOrder is the program's own order, MegatronOrder (megatron_order.h) that of a Megatron-LM run.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace megatron {

/// Tokens [first, first + count) of a TokenSource.
struct TokenRange {
  std::uint64_t first = 0, count = 0;
  bool operator==(const TokenRange&) const = default;
};

/// Thread-safe.
class SampleOrder {
 public:
  explicit SampleOrder(std::int64_t sequence_length);
  virtual ~SampleOrder() = default;
  SampleOrder(const SampleOrder&) = delete;
  SampleOrder& operator=(const SampleOrder&) = delete;

  std::int64_t sequence_length() const { return static_cast<std::int64_t>(sequence_length_); }

  /// Samples before the order begins again (EpochOrder), or ends (MegatronOrder).
  virtual std::uint64_t samples() const = 0;
  /// Replaces `ranges` by those, none empty, that put together are the sequence_length + 1 tokens of a sample.
  /// Allocates nothing if `ranges` has room for sequence_length + 1.
  virtual void locate(std::uint64_t sample, std::vector<TokenRange>& ranges) const = 0;
  /// For the start of a log: what kind, how many samples.
  virtual std::string description() const = 0;

 protected:
  std::uint64_t sequence_length_;
};

/// A bijection of [0, size) onto itself for any key: a Feistel network on the next even power of two, walked until it
/// lands inside. Costs a few Philox calls.
std::uint64_t permute(std::uint64_t index, std::uint64_t size, std::uint64_t key);

/// A range of T tokens holds (T - 1) / s samples of s + 1 tokens; neighbours share one token, and samples run across
/// the ends of documents. Sample i of the run is in epoch i / samples(); every epoch visits all samples once, in an
/// order that depends on (seed, epoch) alone. So a longer run begins with exactly what a shorter one saw.
class EpochOrder final : public SampleOrder {
 public:
  enum class Kind { shuffled, sequential };  ///< sequential: for evaluation

  /// Over the tokens [first_token, first_token + tokens). ErrorKind::data if they do not make one sample.
  EpochOrder(std::uint64_t first_token, std::uint64_t tokens, std::int64_t sequence_length, std::uint64_t seed,
             Kind kind);

  std::uint64_t samples() const override { return samples_per_epoch_; }
  void locate(std::uint64_t sample, std::vector<TokenRange>& ranges) const override;
  std::string description() const override;

  /// The first of the sequence_length + 1 tokens of a sample (index over the whole run).
  std::uint64_t first_token_of(std::uint64_t sample) const;

 private:
  std::uint64_t first_token_, samples_per_epoch_, seed_;
  Kind kind_;
};

}  // namespace megatron

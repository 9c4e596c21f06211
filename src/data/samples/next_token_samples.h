// NextTokenSamples: samples of s + 1 tokens of a sample order, of which the first s are inputs and the last s targets,
// with where documents begin and how much each target's loss counts, if a batch has fields for it.
#pragma once

#include <functional>
#include <mutex>

#include "data/samples/sample_order.h"
#include "data/samples/samples.h"
#include "data/shards/token_dataset.h"

namespace megatron {

/// How much the losses of one sample's targets count, made from nothing but its tokens [s + 1], of which the first s
/// are inputs and the last s targets: sets weights [s], and returns what the sample adds to the number that the
/// weighted sum is divided by. Pure; called from the reading thread.
using LossWeights = std::function<double(std::span<const std::int32_t> tokens, std::span<float> weights)>;

/// starts[i] = the place in `tokens` where token i's document begins: 0, or the place after the last end of a document
/// before i.
void find_document_starts(std::span<const std::int32_t> tokens, std::int32_t end_of_document,
                          std::span<std::int32_t> starts);

/// Puts samples together out of the ranges of tokens that the order says they are made of.
class SampleReader {
 public:
  /// Both must outlive the reader.
  SampleReader(TokenSource& source, const SampleOrder& order);
  /// The sequence_length + 1 tokens of a sample, until the next call.
  std::span<const std::int32_t> read(std::uint64_t sample);

 private:
  TokenSource& source_;
  const SampleOrder& order_;
  std::vector<TokenRange> ranges_;
  std::vector<std::int32_t> tokens_;
};

class NextTokenSamples final : public Samples {
 public:
  /// Source and order must outlive it. A document ends with the token `end_of_document`, which belongs to it. Without
  /// `weigh` each target counts once.
  NextTokenSamples(TokenSource& source, const SampleOrder& order, std::int32_t end_of_document = -1,
                   LossWeights weigh = nullptr);

  std::uint64_t samples() const override { return order_.samples(); }
  std::string description() const override { return order_.description(); }
  void make(std::uint64_t sample, const SampleColumn& to, std::span<double> counts) override;
  std::optional<double> count_per_sample(const BatchSizes& sizes) const override;
  std::vector<NamedTokens> show(std::uint64_t sample) override;

 private:
  void place_documents(std::span<const std::int32_t> tokens, const SampleColumn& to);

  const SampleOrder& order_;
  std::int32_t end_of_document_;
  LossWeights weigh_;
  std::mutex mutex_;  // over all below
  SampleReader reader_;
  std::vector<std::int32_t> starts_;
  std::vector<float> weights_;
};

}  // namespace megatron

// Datasets: the token shards an input file names, and the samples of its three splits.
//
// Each rank opens them for itself. Knows nothing of batches.
#pragma once

#include <memory>
#include <optional>

#include "config/resolve.h"
#include "data/sample_order.h"
#include "data/token_dataset.h"

namespace megatron {

/// Documents [first, end) of a token set.
struct DocumentRange {
  TokenDataset* source = nullptr;
  std::uint64_t first = 0, end = 0;
  std::uint64_t tokens() const { return source->document_start(end) - source->document_start(first); }
};

/// A split that has at least one sample.
struct SampleSet {
  TokenDataset* source = nullptr;
  std::unique_ptr<const SampleOrder> order;
};

/// Global batches of one evaluation on the set: train.evaluate_steps, or as many whole ones as it has; one at least,
/// for which a smaller set is begun again.
std::int64_t evaluation_batches(const Config& config, const SampleSet& samples);

class Datasets {
 public:
  /// `model.sequence_length` and `train.seed` must be set, with data.order = "megatron" the run's length, batches and
  /// evaluations as well; nothing else need be resolved. With data.validation (or data.test) of their own, data.split
  /// cuts only what remains with data.train.
  explicit Datasets(const Config& config);

  DataFacts facts() const { return facts_; }
  const SampleSet& train() const { return *train_; }
  const std::optional<SampleSet>& validation() const { return validation_; }
  const std::optional<SampleSet>& test() const { return test_; }
  /// The sample of validation() that the evaluation after `step` (at least 1) begins with: always the first, or with
  /// Megatron's order the next one after those of all evaluations before.
  std::int64_t first_validation_sample(std::int64_t step) const;

  std::string fingerprint() const;  ///< of all token sets: equal for equal contents
  /// With Megatron's order: the sample count that it is made for, the documents it shuffles and a hash of their
  /// lengths.
  std::int64_t order_samples() const { return order_samples_; }
  std::uint64_t train_documents() const { return train_documents_; }
  std::uint64_t document_lengths() const { return document_lengths_; }
  const TokenDataset& train_source() const { return *sources_.front(); }

 private:
  TokenDataset& open(const std::string& prefix);
  void order_as_megatron(const Config& config, const DocumentRange& train, const DocumentRange& validation,
                         const DocumentRange& test);

  Config config_;
  std::vector<std::unique_ptr<TokenDataset>> sources_;
  DataFacts facts_;
  std::optional<SampleSet> train_, validation_, test_;
  std::uint64_t train_documents_ = 0, document_lengths_ = 0;
  // With Megatron's order: its sample count, the steps of a run of that length, and samples of one evaluation.
  std::int64_t order_samples_ = 0, order_steps_ = 0, evaluation_samples_ = 0;
};

}  // namespace megatron

// Datasets: the token shards an input file names, and the samples of its three splits.
//
// Each rank opens them for itself. Knows nothing of batches or steps.
#pragma once

#include <memory>
#include <optional>

#include "config/resolve.h"
#include "data/sample_order.h"
#include "data/token_dataset.h"

namespace megatron {

/// A split that has at least one sample.
struct SampleSet {
  TokenDataset* source = nullptr;
  SampleOrder order;
};

class Datasets {
 public:
  /// `model.sequence_length` and `train.seed` must be set; nothing else need be resolved. With data.validation (or
  /// data.test) of their own, data.split cuts only what remains with data.train.
  explicit Datasets(const Config& config);

  DataFacts facts() const;
  const SampleSet& train() const { return *train_; }
  const std::optional<SampleSet>& validation() const { return validation_; }  ///< in order
  const std::optional<SampleSet>& test() const { return test_; }              ///< in order
  std::string fingerprint() const;  ///< of all token sets: equal for equal contents
  const TokenDataset& train_source() const { return *sources_.front(); }

 private:
  TokenDataset& open(const std::string& prefix);

  std::vector<std::unique_ptr<TokenDataset>> sources_;
  std::optional<SampleSet> train_, validation_, test_;
};

}  // namespace megatron

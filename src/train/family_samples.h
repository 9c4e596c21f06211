// What makes the samples of each family's batches (model.family): a row of a table, the one place where a new kind of
// samples enters training. The families themselves know nothing of data (model/family.h).
#pragma once

#include <memory>

#include "config/config.h"
#include "data/sample_order.h"
#include "data/samples.h"
#include "data/token_dataset.h"

namespace megatron {

/// What samples are made of: all must outlive them.
struct SampleInputs {
  TokenSource& source;
  const SampleOrder& order;
  const Vocabulary& vocabulary;
  bool training = true;  ///< else of an evaluation
};

struct FamilySamples {
  std::string_view family;
  std::unique_ptr<Samples> (*make)(const Config& config, const SampleInputs& inputs);
};

/// Error(configuration), naming the family, where it has no row.
const FamilySamples& samples_of_family(const ModelConfig& model);

}  // namespace megatron

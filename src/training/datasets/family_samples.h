// Makes the samples of each family's batches (model.family): a row of a table, the one place where a new kind of
// samples enters training. The families themselves know nothing of data (models/families/family.h).
#pragma once

#include <memory>

#include "config/schema/config.h"
#include "data/samples/sample_order.h"
#include "data/samples/samples.h"
#include "data/samples/sentence_map.h"
#include "data/shards/token_dataset.h"

namespace megatron {

/// Inputs of samples of tokens in a row: all must outlive the samples.
struct TokenInputs {
  TokenSource& source;
  const SampleOrder& order;
  const Vocabulary& vocabulary;
  bool training = true;  ///< else of an evaluation
};

/// Inputs of samples of whole sentences: some documents of one set. What it refers to must outlive the samples.
struct SentenceInputs {
  SentenceCorpus corpus;
  const TokenDataset& source;
  std::uint64_t first_document = 0, end_document = 0;
  SentenceOrder order = SentenceOrder::shuffled;
  std::uint64_t seed = 0;
  std::uint64_t wanted_samples = 0;  ///< SentenceOrder::megatron
};

/// Has `of_tokens`, or both of the others.
struct FamilySamples {
  std::string_view family;
  std::unique_ptr<Samples> (*of_tokens)(const Config& config, const TokenInputs& inputs) = nullptr;
  /// ErrorKind::data, naming the set, if its vocabulary lacks what the samples need.
  std::unique_ptr<Samples> (*of_sentences)(const Config& config, const SentenceInputs& inputs) = nullptr;
  /// Samples that one pass over these documents makes: as of_sentences, but 0 is no error.
  std::uint64_t (*sentence_samples)(const Config& config, const SentenceInputs& inputs) = nullptr;
  int fewest_sentences = 2;  ///< in a document that makes samples
};

/// Error(configuration), naming the family, where it has no row.
const FamilySamples& samples_of_family(const ModelConfig& model);

}  // namespace megatron

#include "training/datasets/sentence_sets.h"

#include <algorithm>

#include "base/core/error.h"

namespace megatron {

SentenceInputs SentenceSets::inputs_of(const SplitPart& part) {
  TokenDataset& source = *part.source;
  verify(source.has_sentences(), ErrorKind::data,
         "{}: these shards do not know where sentences begin, which model.family = \"{}\" needs; make them again with "
         "megatron_preprocess --split-sentences (or --sentences lines, or array)",
         source.path(), config_.model.family);
  const auto [at, is_new] = starts_.try_emplace(&source);
  Starts& starts = at->second;
  if (is_new) {
    starts.sentences = source.read_sentences();
    starts.documents.reserve(source.documents() + 1);
    auto sentence = starts.sentences.begin();
    for (const std::uint64_t token : source.document_starts()) {
      sentence = std::lower_bound(sentence, starts.sentences.end(), token);
      starts.documents.push_back(static_cast<std::uint64_t>(sentence - starts.sentences.begin()));
    }
  }
  return {.corpus = {&source, starts.sentences, starts.documents},
          .source = source,
          .first_document = part.first_document,
          .end_document = part.end_document,
          .seed = part.seed};
}

std::uint64_t SentenceSets::samples_of_a_pass(const SplitPart& part) {
  SentenceInputs inputs = inputs_of(part);
  inputs.order = config_.data.megatrons_order() ? SentenceOrder::megatron : SentenceOrder::shuffled;
  return samples_of_family(config_.model).sentence_samples(config_, inputs);
}

std::unique_ptr<Samples> SentenceSets::make(const SplitPart& part, SentenceOrder order, std::uint64_t wanted) {
  SentenceInputs inputs = inputs_of(part);
  inputs.order = order;
  inputs.wanted_samples = wanted;
  return samples_of_family(config_.model).of_sentences(config_, inputs);
}

}  // namespace megatron

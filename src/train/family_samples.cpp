#include "train/family_samples.h"

#include <algorithm>

#include "base/error.h"
#include "data/bert_samples.h"
#include "data/next_token_samples.h"
#include "train/losses.h"

namespace megatron {

namespace {

std::unique_ptr<Samples> next_tokens(const Config& config, const TokenInputs& inputs) {
  const auto end = static_cast<std::int32_t>(inputs.vocabulary.eod_id);
  return std::make_unique<NextTokenSamples>(
      inputs.source, inputs.order, end,
      inputs.training ? training_weights(config, end) : evaluation_weights(config, end));
}

BertSampleOptions bert_options(const Config& config, const SentenceInputs& inputs) {
  const Vocabulary& vocabulary = inputs.source.vocabulary();
  const SpecialIds& ids = vocabulary.special;
  verify(ids.cls >= 0 && ids.sep >= 0 && ids.mask >= 0 && ids.pad >= 0 && !vocabulary.continues.empty(),
         ErrorKind::data,
         "{}: its vocabulary (\"{}\") lacks the tokens [CLS], [SEP], [MASK] and [PAD], or what continues a word, which "
         "model.family = \"bert\" needs; make it again with megatron_preprocess --split-sentences --tokenizer "
         "bert-uncased "
         "(or bert-cased) --vocab-file vocab.txt",
         inputs.source.path(), vocabulary.tokenizer);
  return {.first_document = inputs.first_document,
          .end_document = inputs.end_document,
          .sequence_length = config.model.sequence_length,
          .mask_probability = config.data.mask_probability,
          .short_probability = config.data.short_probability,
          .order = inputs.order,
          .seed = inputs.seed,
          .wanted_samples = inputs.wanted_samples};
}

std::unique_ptr<Samples> masked_pairs(const Config& config, const SentenceInputs& inputs) {
  const Vocabulary& vocabulary = inputs.source.vocabulary();
  return std::make_unique<BertSamples>(inputs.corpus, MaskedVocabulary{vocabulary.special, vocabulary.continues},
                                       bert_options(config, inputs));
}

std::uint64_t count_masked_pairs(const Config& config, const SentenceInputs& inputs) {
  return BertSamples::samples_of_a_pass(inputs.corpus, bert_options(config, inputs));
}

constexpr FamilySamples kFamilySamples[] = {
    {.family = "gpt", .of_tokens = next_tokens},
    {.family = "bert", .of_sentences = masked_pairs, .sentence_samples = count_masked_pairs},
};

}  // namespace

const FamilySamples& samples_of_family(const ModelConfig& model) {
  const auto* const found = std::find_if(std::begin(kFamilySamples), std::end(kFamilySamples),
                                         [&](const FamilySamples& row) { return row.family == model.family; });
  verify(found != std::end(kFamilySamples), ErrorKind::configuration,
         "model.family = \"{}\" is not supported for training yet, since nothing makes its samples; only --dry-run "
         "plans it",
         model.family);
  return *found;
}

}  // namespace megatron

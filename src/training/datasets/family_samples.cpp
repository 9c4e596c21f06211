#include "training/datasets/family_samples.h"

#include <algorithm>

#include "base/core/error.h"
#include "config/rules/rules.h"
#include "data/samples/bert_samples.h"
#include "data/samples/next_token_samples.h"
#include "data/samples/t5_samples.h"
#include "training/datasets/losses.h"

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

T5SampleOptions t5_options(const Config& config, const SentenceInputs& inputs) {
  const Vocabulary& vocabulary = inputs.source.vocabulary();
  const SpecialIds& ids = vocabulary.special;
  verify(ids.bos >= 0 && ids.eos >= 0 && ids.pad >= 0 && ids.sentinels > 0 && !vocabulary.continues.empty(),
         ErrorKind::data,
         "{}: its vocabulary (\"{}\") lacks sentinels, a beginning, an end or padding, or what continues a word, which "
         "model.family = \"t5\" needs; make it again with megatron_preprocess --split-sentences --extra-ids 100 and a "
         "WordPiece or SentencePiece vocabulary",
         inputs.source.path(), vocabulary.tokenizer);
  return {.first_document = inputs.first_document,
          .end_document = inputs.end_document,
          .sequence_length = config.model.sequence_length,
          .decoder_length = decoder_sequence_length_of(config.model),
          .mask_probability = config.data.mask_probability,
          .short_probability = config.data.short_probability,
          .order = inputs.order,
          .seed = inputs.seed,
          .wanted_samples = inputs.wanted_samples};
}

// Samples that are looked at before a run begins: all but those of large runs, of which a rare one may still be refused
// in the middle. Half a second for the first, of whose order every sample must fit.
constexpr std::uint64_t kCheckedInMegatronsOrder = 20'000, kChecked = 1'000;

// A run would end in the middle, or train with far fewer spans than it asks for.
void check_spans(const Config& config, const SentenceInputs& inputs, const T5Samples& samples) {
  const bool all_must_fit = inputs.order == SentenceOrder::megatron;
  const T5Needs needs = samples.needs(all_must_fit ? kCheckedInMegatronsOrder : kChecked);
  const std::int32_t sentinels = inputs.source.vocabulary().special.sentinels;
  const bool enough = all_must_fit ? needs.most_spans <= static_cast<std::uint64_t>(sentinels)
                                   : needs.mean_spans <= static_cast<double>(sentinels);
  verify(
      enough, ErrorKind::configuration,
      "{}: data.mask_probability = {} of samples of model.sequence_length = {} takes {:.1f} spans on average and up to "
      "{}, and each needs a sentinel, of which the vocabulary has {}; make the set again with megatron_preprocess "
      "--extra-ids {}, or lower data.mask_probability",
      inputs.source.path(), config.data.mask_probability, config.model.sequence_length, needs.mean_spans,
      needs.most_spans, sentinels, needs.most_spans);
  const std::int64_t decoder_length = decoder_sequence_length_of(config.model);
  verify(!all_must_fit || needs.most_tokens <= static_cast<std::uint64_t>(decoder_length), ErrorKind::configuration,
         "{}: masks of data.mask_probability = {} need up to {} tokens of the decoder, and "
         "model.decoder_sequence_length = {}; lengthen it, or use data.order = \"epoch\", which leaves out spans that "
         "do not fit",
         inputs.source.path(), config.data.mask_probability, needs.most_tokens, decoder_length);
}

std::unique_ptr<Samples> masked_spans(const Config& config, const SentenceInputs& inputs) {
  const Vocabulary& vocabulary = inputs.source.vocabulary();
  const auto made = [&] {
    return std::make_unique<T5Samples>(inputs.corpus, MaskedVocabulary{vocabulary.special, vocabulary.continues},
                                       t5_options(config, inputs));
  };
  check_spans(config, inputs, *made());  // another one, since what was asked for samples holds 8 bytes for each
  return made();
}

std::uint64_t count_masked_spans(const Config& config, const SentenceInputs& inputs) {
  return T5Samples::samples_of_a_pass(inputs.corpus, t5_options(config, inputs));
}

constexpr FamilySamples kFamilySamples[] = {
    {.family = "gpt", .of_tokens = next_tokens},
    {.family = "bert", .of_sentences = masked_pairs, .sentence_samples = count_masked_pairs},
    {.family = "t5", .of_sentences = masked_spans, .sentence_samples = count_masked_spans, .fewest_sentences = 1},
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

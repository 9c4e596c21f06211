// T5's samples: Megatron's against megatron-core, field by field; the program's own by what they promise.
#include "data/samples/sentence_corpus.h"
#include "data/samples/t5_samples.h"
#include "support/catch.h"
#include "support/require_error.h"

using namespace megatron;
using namespace megatron::test;
using nlohmann::json;

namespace {

T5SampleOptions t5_options_of(const json& row) {
  return {.first_document = row.at("first"),
          .end_document = row.at("end"),
          .sequence_length = row.at("sequence_length"),
          .decoder_length = row.at("decoder_length"),
          .mask_probability = row.at("mask_probability"),
          .short_probability = row.at("short_probability"),
          .order = SentenceOrder::megatron,
          .seed = row.at("seed"),
          .wanted_samples = row.at("wanted")};
}

/// As Megatron has them; masks by the token of padding, as in BERT's.
Fields fields_of(const T5Sample& sample) {
  const auto mask_of = [](const Ids& tokens, std::int32_t length) {
    Ids mask(tokens.size());
    for (std::size_t i = 0; i < mask.size(); ++i) {
      mask[i] = static_cast<std::int32_t>(i) < length && tokens[i] != 0 ? 1 : 0;
    }
    return mask;
  };
  Ids labels(sample.targets), loss_mask;
  for (std::size_t i = 0; i < labels.size(); ++i) {
    if (sample.weights[i] == 0) labels[i] = -1;
    loss_mask.push_back(static_cast<std::int32_t>(sample.weights[i]));
  }
  return {{"text_enc", sample.encoder_tokens},
          {"text_dec", sample.tokens},
          {"labels", labels},
          {"loss_mask", loss_mask},
          {"truncated", {sample.truncated ? 1 : 0}},
          {"enc_mask", mask_of(sample.encoder_tokens, sample.encoder_length)},
          {"dec_mask", mask_of(sample.tokens, sample.length)}};
}

MemoryCorpus large_t5_corpus(std::int32_t sentinels = 100) {
  return {golden_samples().at("corpora").at("real"), sentinels};
}

T5SampleOptions own_t5_options(const MemoryCorpus& corpus, std::int64_t sequence_length, std::int64_t decoder_length) {
  return {.end_document = corpus.documents(),
          .sequence_length = sequence_length,
          .decoder_length = decoder_length,
          .seed = 9};
}

/// The text, put together out of what the encoder reads and the decoder is to write.
Ids whole_text(const T5Sample& sample, const MaskedVocabulary& vocabulary) {
  const SpecialIds& ids = vocabulary.ids;
  const auto is_sentinel = [&](std::int32_t token) {
    const std::int32_t i = (token - ids.first_sentinel) * ids.sentinel_step;
    return i >= 0 && i < ids.sentinels;
  };
  Ids text;
  std::size_t t = 0;
  std::int32_t sentinel = ids.first_sentinel;
  for (std::int32_t i = 0; i < sample.encoder_length; ++i) {
    const std::int32_t token = sample.encoder_tokens[static_cast<std::size_t>(i)];
    if (!is_sentinel(token)) {
      text.push_back(token);
      continue;
    }
    CHECK(token == sentinel);
    CHECK(sample.targets[t] == sentinel);
    sentinel += ids.sentinel_step;
    for (++t; !is_sentinel(sample.targets[t]) && sample.targets[t] != ids.eos; ++t) text.push_back(sample.targets[t]);
  }
  CHECK(sample.targets[t] == ids.eos);
  CHECK(static_cast<std::int32_t>(t) + 1 == sample.length);
  return text;
}

}  // namespace

TEST_CASE("t5: Megatron's samples, field by field", "[t5]") {
  int cases = 0, truncated = 0;
  for (const json& row : golden_samples().at("t5")) {
    INFO(row.at("corpus") << ", length " << row.at("sequence_length") << ", seed " << row.at("seed"));
    MemoryCorpus corpus(golden_samples().at("corpora").at(row.at("corpus").get<std::string>()), row.at("sentinels"));
    const T5Samples samples(corpus.corpus(), corpus.vocabulary(), t5_options_of(row));
    REQUIRE(samples.samples() == row.at("samples").get<std::uint64_t>());
    ++cases;
    check_fields(row, [&](std::uint64_t i) {
      const T5Sample sample = samples.make(i);
      truncated += sample.truncated ? 1 : 0;
      return fields_of(sample);
    });
  }
  CHECK((cases == 9 && truncated > 300));
}

TEST_CASE("t5: encoder and targets together are the text", "[t5]") {
  for (const std::int32_t step : {1, -1}) {
    MemoryCorpus corpus = large_t5_corpus();
    SpecialIds& ids = corpus.special_ids();
    if (step == -1) ids.first_sentinel += ids.sentinels - 1;
    ids.sentinel_step = step;
    const MaskedVocabulary vocabulary = corpus.vocabulary();
    const T5Samples samples(corpus.corpus(), vocabulary, own_t5_options(corpus, 512, 140));
    double masked = 0, tokens = 0;
    for (std::uint64_t i = 0; i < 5 * samples.samples(); ++i) {
      const T5Sample sample = samples.make(i);
      const SentenceMap::Entry entry = samples.map().at(i);
      const Ids text = whole_text(sample, vocabulary);
      const auto first = corpus.tokens().begin() + static_cast<std::ptrdiff_t>(corpus.sentence(entry.first));
      REQUIRE(text.size() == std::min(static_cast<std::uint64_t>(entry.target),
                                      corpus.sentence(entry.end) - corpus.sentence(entry.first)));
      CHECK(std::equal(text.begin(), text.end(), first));
      CHECK(sample.tokens[0] == ids.bos);
      for (std::size_t t = 0; t < sample.tokens.size(); ++t) {
        const bool counts = static_cast<std::int32_t>(t) < sample.length;
        CHECK(sample.weights[t] == (counts ? 1.0f : 0.0f));
        if (t > 0) CHECK(sample.tokens[t] == (counts ? sample.targets[t - 1] : 0));
      }
      tokens += static_cast<double>(text.size());
      const auto spans = std::count_if(sample.encoder_tokens.begin(), sample.encoder_tokens.end(),
                                       [](std::int32_t token) { return token >= 30522; });
      masked += static_cast<double>(text.size()) - static_cast<double>(sample.encoder_length - spans);
    }
    CHECK((masked / tokens > 0.14 && masked / tokens < 0.151));
  }
}

TEST_CASE("t5: spans that do not fit are left out, or refused in Megatron's order", "[t5]") {
  for (const bool few_sentinels : {true, false}) {
    MemoryCorpus corpus = large_t5_corpus(few_sentinels ? 3 : 100);
    T5SampleOptions options = own_t5_options(corpus, 256, few_sentinels ? 100 : 20);
    const T5Samples samples(corpus.corpus(), corpus.vocabulary(), options);
    std::int32_t longest = 0, most_spans = 0;
    for (std::uint64_t i = 0; i < samples.samples(); ++i) {
      const T5Sample sample = samples.make(i);
      whole_text(sample, corpus.vocabulary());
      longest = std::max(longest, sample.length);
      const auto spans = std::count_if(sample.targets.begin(), sample.targets.end(),
                                       [](std::int32_t token) { return token >= 30524; });
      most_spans = std::max(most_spans, static_cast<std::int32_t>(spans));
    }
    if (few_sentinels) {
      CHECK(most_spans == 3);
    } else {
      CHECK(longest == 20);
    }
    options.order = SentenceOrder::megatron;
    options.wanted_samples = 50;
    const T5Samples refused(corpus.corpus(), corpus.vocabulary(), options);
    require_error(ErrorKind::configuration, {"of Megatron's order masks spans that do not fit"}, [&] {
      for (std::uint64_t i = 0; i < 50; ++i) refused.make(i);
    });
  }
}

TEST_CASE("t5: what masks need is what they take where all fits", "[t5]") {
  MemoryCorpus corpus = large_t5_corpus(), few = large_t5_corpus(3);
  const T5Samples roomy(corpus.corpus(), corpus.vocabulary(), own_t5_options(corpus, 256, 140));
  const T5Samples tight(few.corpus(), few.vocabulary(), own_t5_options(few, 256, 10));
  std::uint64_t most_spans = 0, most_tokens = 0;
  double spans = 0;
  for (std::uint64_t i = 0; i < roomy.samples(); ++i) {
    const T5Sample sample = roomy.make(i);
    const auto of_sample = static_cast<std::uint64_t>(std::count_if(
        sample.targets.begin(), sample.targets.end(), [](std::int32_t token) { return token >= 30522 + 2; }));
    most_spans = std::max(most_spans, of_sample);
    most_tokens = std::max(most_tokens, static_cast<std::uint64_t>(sample.length));
    spans += static_cast<double>(of_sample);
  }
  for (const T5Samples* samples : {&roomy, &tight}) {
    const T5Needs needs = samples->needs(1'000'000);
    CHECK(needs.most_spans == most_spans);
    CHECK(needs.most_tokens == most_tokens);
    CHECK(needs.mean_spans == Approx(spans / static_cast<double>(roomy.samples())));
    CHECK(samples->needs(1).most_spans <= most_spans);
  }
}

TEST_CASE("t5: known samples of the program's own order", "[t5]") {
  // Stored: they must stay what they are, on every machine and in every version.
  MemoryCorpus corpus = large_t5_corpus();
  const T5Samples samples(corpus.corpus(), corpus.vocabulary(), own_t5_options(corpus, 128, 64));
  const T5Samples again(corpus.corpus(), corpus.vocabulary(), own_t5_options(corpus, 128, 64));
  std::uint64_t sum = 0, backwards = 0;
  for (std::uint64_t i = 0; i < 300; ++i) {
    for (const auto& [name, values] : fields_of(samples.make(i))) sum = checksum(values, sum);
  }
  for (std::uint64_t i = 300; i-- > 0;) backwards += fields_of(again.make(i)) == fields_of(samples.make(i)) ? 1 : 0;
  CHECK(sum == 12046430655080561999u);
  CHECK(backwards == 300);
}

TEST_CASE("t5: short sequences and incomplete vocabularies are refused", "[t5]") {
  MemoryCorpus corpus = large_t5_corpus(), without = large_t5_corpus(0);
  T5SampleOptions options = own_t5_options(corpus, 4, 3);
  CHECK(T5Samples(corpus.corpus(), corpus.vocabulary(), options).make(3).length <= 3);
  require_error(ErrorKind::data, {"lacks a token that T5's samples need"},
                [&] { T5Samples(without.corpus(), without.vocabulary(), options); });
  options.sequence_length = 3;
  require_error(ErrorKind::configuration, {"model.sequence_length = 3 is too short"},
                [&] { T5Samples(corpus.corpus(), corpus.vocabulary(), options); });
  options = own_t5_options(corpus, 4, 2);
  require_error(ErrorKind::configuration, {"model.decoder_sequence_length = 2 has no room"},
                [&] { T5Samples(corpus.corpus(), corpus.vocabulary(), options); });
}

// BERT's samples: Megatron's against megatron-core, field by field; the program's own by what they promise.
#include <array>
#include <cmath>
#include <map>
#include <thread>

#include "data/samples/batches.h"
#include "data/samples/bert_samples.h"
#include "data/samples/sentence_corpus.h"
#include "support/catch.h"
#include "support/require_error.h"

using namespace megatron;
using namespace megatron::test;
using nlohmann::json;

namespace {

BertSampleOptions bert_options_of(const json& row) {
  return {.first_document = row.at("first"),
          .end_document = row.at("end"),
          .sequence_length = row.at("sequence_length"),
          .sentence_order = row.at("sentence_order"),
          .mask_probability = row.at("mask_probability"),
          .short_probability = row.at("short_probability"),
          .order = SentenceOrder::megatron,
          .seed = row.at("seed"),
          .wanted_samples = row.at("wanted")};
}

/// As Megatron has them: -1 for no label and where nothing is masked; and padding wherever the token is that of
/// padding, also inside of texts (Megatron-LM of 2022 does not). Its attention leaves such tokens out; ours does not.
Fields fields_of(const BertSample& sample) {
  Ids labels(sample.targets), padding_mask(sample.tokens.size()), loss_mask;
  for (std::size_t i = 0; i < labels.size(); ++i) {
    if (sample.weights[i] == 0) {
      CHECK(labels[i] == 0);
      labels[i] = -1;
    }
    padding_mask[i] = static_cast<std::int32_t>(i) < sample.length && sample.tokens[i] != 0 ? 1 : 0;
    loss_mask.push_back(static_cast<std::int32_t>(sample.weights[i]));
  }
  return {{"text", sample.tokens},
          {"types", sample.types},
          {"labels", labels},
          {"is_random", {std::max(sample.label, 0)}},
          {"padding_mask", padding_mask},
          {"loss_mask", loss_mask},
          {"truncated", {sample.truncated ? 1 : 0}}};
}

MemoryCorpus large_bert_corpus() {
  return {golden_samples().at("corpora").at("real"), 0};
}

BertSampleOptions own_bert_options(const MemoryCorpus& corpus, std::int64_t sequence_length) {
  return {.end_document = corpus.documents(), .sequence_length = sequence_length, .seed = 9};
}

bool same(const BertSample& a, const BertSample& b) {
  return a.tokens == b.tokens && a.types == b.types && a.targets == b.targets && a.weights == b.weights &&
         a.length == b.length && a.label == b.label && a.truncated == b.truncated;
}

/// The tokens before they were masked.
Ids unmasked(const BertSample& sample) {
  Ids ids(sample.tokens.begin(), sample.tokens.begin() + sample.length);
  for (std::size_t i = 0; i < ids.size(); ++i) {
    if (sample.weights[i] != 0) ids[i] = sample.targets[i];
  }
  return ids;
}

}  // namespace

TEST_CASE("bert: Megatron's samples, field by field", "[bert]") {
  int swapped = 0, truncated = 0, pads_inside = 0, cases = 0;
  for (const json& row : golden_samples().at("bert")) {
    INFO(row.at("corpus") << ", length " << row.at("sequence_length") << ", seed " << row.at("seed"));
    MemoryCorpus corpus(golden_samples().at("corpora").at(row.at("corpus").get<std::string>()), 0);
    const BertSamples samples(corpus.corpus(), corpus.vocabulary(), bert_options_of(row));
    REQUIRE(samples.samples() == row.at("samples").get<std::uint64_t>());
    ++cases;
    check_fields(row, [&](std::uint64_t i) {
      const BertSample sample = samples.make(i);
      CHECK((sample.label >= 0) == row.at("sentence_order").get<bool>());
      swapped += sample.label == 1 ? 1 : 0;
      truncated += sample.truncated ? 1 : 0;
      pads_inside += std::count(sample.tokens.begin(), sample.tokens.begin() + sample.length, 0) > 0 ? 1 : 0;
      return fields_of(sample);
    });
  }
  CHECK(cases == 19);
  CHECK((swapped > 500 && truncated > 500 && pads_inside > 5));  // the cases must contain all of these
}

TEST_CASE("bert: a sample is its document's sentences in one order or the other", "[bert]") {
  MemoryCorpus corpus = large_bert_corpus();
  for (const bool sentence_order : {true, false}) {
    BertSampleOptions options = own_bert_options(corpus, 600);  // longer than most documents' samples
    options.sentence_order = sentence_order;
    options.short_probability = 0;
    const BertSamples samples(corpus.corpus(), corpus.vocabulary(), options);
    std::map<std::int32_t, int> labels;
    int whole = 0;
    for (std::uint64_t i = 0; i < 4 * samples.samples(); ++i) {
      const BertSample sample = samples.make(i);
      ++labels[sample.label];
      REQUIRE((sample.tokens.size() == 600 && sample.types.size() == 600 && sample.length <= 600));
      const Ids ids = unmasked(sample);
      CHECK((ids.front() == 2 && ids.back() == 3));
      for (std::size_t t = ids.size(); t < 600; ++t) {
        CHECK((sample.tokens[t] == 0 && sample.types[t] == 0 && sample.targets[t] == 0 && sample.weights[t] == 0));
      }
      const auto b_begin = std::find(sample.types.begin(), sample.types.end(), 1) - sample.types.begin();
      if (sample.truncated) continue;
      ++whole;
      Ids a(ids.begin() + 1, ids.end() - 1), b;
      if (sentence_order) {
        a = Ids(ids.begin() + 1, ids.begin() + b_begin - 1);
        b = Ids(ids.begin() + b_begin, ids.end() - 1);
        if (sample.label == 1) std::swap(a, b);
      }
      a.insert(a.end(), b.begin(), b.end());
      const SentenceMap::Entry entry = samples.map().at(i);
      CHECK(a == Ids(corpus.tokens().begin() + static_cast<std::ptrdiff_t>(corpus.sentence(entry.first)),
                     corpus.tokens().begin() + static_cast<std::ptrdiff_t>(corpus.sentence(entry.end))));
    }
    CHECK(whole > 50);
    if (sentence_order) {
      CHECK((labels.size() == 2 && labels[0] > labels[1] / 2 && labels[1] > labels[0] / 2));
    } else {
      CHECK((labels.size() == 1 && labels.count(-1) == 1));
    }
  }
}

TEST_CASE("bert: masks follow from the sample's number alone", "[bert]") {
  MemoryCorpus corpus = large_bert_corpus();
  const BertSampleOptions options = own_bert_options(corpus, 128);
  const BertSamples samples(corpus.corpus(), corpus.vocabulary(), options);
  const std::uint64_t n = samples.samples();
  std::vector<BertSample> forward;
  for (std::uint64_t i = 0; i < n; ++i) forward.push_back(samples.make(i));
  const BertSamples again(corpus.corpus(), corpus.vocabulary(), options);
  int others = 0;
  BertSampleOptions other_seed = options;
  other_seed.seed = 10;
  const BertSamples reseeded(corpus.corpus(), corpus.vocabulary(), other_seed);
  for (std::uint64_t i = n; i-- > 0;) {
    CHECK(same(again.make(i), forward[i]));
    others += same(reseeded.make(i), forward[i]) ? 0 : 1;
  }
  CHECK(others == static_cast<int>(n));
  BertSampleOptions in_order = options;
  in_order.order = SentenceOrder::sequential;
  const BertSamples sequential(corpus.corpus(), corpus.vocabulary(), in_order);
  int new_masks = 0;  // the same sentences in another pass
  for (std::uint64_t i = 0; i < n; ++i) {
    CHECK(sequential.map().at(i) == sequential.map().at(n + i));
    new_masks += sequential.make(i).weights != sequential.make(n + i).weights ? 1 : 0;
  }
  CHECK(new_masks > static_cast<int>(n) * 9 / 10);
}

TEST_CASE("bert: several threads make the same samples", "[bert]") {
  MemoryCorpus corpus = large_bert_corpus();
  for (const SentenceOrder order : {SentenceOrder::megatron, SentenceOrder::shuffled}) {
    BertSampleOptions options = own_bert_options(corpus, 128);
    options.order = order;
    options.wanted_samples = 200;
    const BertSamples samples(corpus.corpus(), corpus.vocabulary(), options);
    const BertSamples alone(corpus.corpus(), corpus.vocabulary(), options);
    std::array<std::vector<BertSample>, 3> made;
    std::vector<std::thread> threads;
    for (auto& mine : made) {
      threads.emplace_back([&samples, &mine] {
        for (std::uint64_t i = 0; i < 200; ++i) mine.push_back(samples.make(i));
      });
    }
    for (std::thread& thread : threads) thread.join();
    int equal = 0;
    for (std::uint64_t i = 0; i < 200; ++i) {
      for (const auto& mine : made) equal += same(mine[i], alone.make(i)) ? 1 : 0;
    }
    CHECK(equal == 600);
  }
}

TEST_CASE("bert: masks are whole words, 15 % of tokens, 80/10/10", "[bert]") {
  MemoryCorpus corpus = large_bert_corpus();
  const MaskedVocabulary vocabulary = corpus.vocabulary();
  const BertSamples samples(corpus.corpus(), vocabulary, own_bert_options(corpus, 512));
  double tokens = 0, masked = 0, as_mask = 0, kept = 0, spans = 0, broken = 0;
  for (std::uint64_t i = 0; i < 40 * samples.samples(); ++i) {
    const BertSample sample = samples.make(i);
    const Ids ids = unmasked(sample);
    const TextWords text = find_words(ids, vocabulary);
    tokens += static_cast<double>(ids.size());
    double here = 0;
    bool was_masked = false;
    for (std::uint64_t w = 0; w < text.words(); ++w) {
      const bool word_masked = sample.weights[text.places[text.starts[w]]] == 1;
      spans += word_masked && !was_masked ? 1 : 0;
      was_masked = word_masked;
      for (std::uint32_t p = text.starts[w]; p < text.starts[w + 1]; ++p) {
        const std::uint32_t place = text.places[p];
        broken += (sample.weights[place] == 1) == word_masked ? 0 : 1;
        if (!word_masked) continue;
        ++here;
        as_mask += sample.tokens[place] == vocabulary.ids.mask ? 1 : 0;
        kept += sample.tokens[place] == sample.targets[place] ? 1 : 0;
        CHECK((sample.tokens[place] >= 0 && static_cast<std::uint64_t>(sample.tokens[place]) < vocabulary.size()));
      }
    }
    masked += here;
    CHECK((here >= 1 && here <= std::max(1.0, std::nearbyint(0.15 * static_cast<double>(ids.size())))));
    CHECK((sample.weights[0] == 0 && sample.weights[static_cast<std::size_t>(sample.length) - 1] == 0));
  }
  CHECK(broken == 0);
  CHECK((masked / tokens > 0.14 && masked / tokens < 0.151));
  // 4 deviations of some 50000 draws
  CHECK(masked > 40000);
  CHECK(std::abs(as_mask / masked - 0.8) < 0.01);
  CHECK(std::abs(kept / masked - 0.1) < 0.008);
  // A mean of 18/11 words of 4/3 tokens per span, some of them neighbours or cut short
  CHECK((masked / spans > 1.9 && masked / spans < 2.8));
}

TEST_CASE("bert: draws by the sample's number are evenly spread", "[bert]") {
  std::map<std::uint64_t, int> splits, inverse, geometric, first;
  int cut = 0, swapped = 0;
  constexpr int kDraws = 20000;
  for (std::uint64_t i = 0; i < kDraws; ++i) {
    PhiloxDraws draws(3, i);
    ++splits[draws.split(4)];
    ++inverse[draws.span_words(static_cast<std::uint32_t>(i % 7), SpanLengths::inverse)];
    ++geometric[draws.span_words(static_cast<std::uint32_t>(i % 5), SpanLengths::geometric)];
    swapped += draws.swap() ? 1 : 0;
    cut += draws.cut_front(i % 300) ? 1 : 0;
    std::vector<std::uint32_t> words = {0, 1, 2, 3, 4};
    draws.shuffle(words);
    ++first[words[0]];
  }
  const auto near = [](int count, double share) {
    return std::abs(count - share * kDraws) < 4.5 * std::sqrt(share * (1 - share) * kDraws);
  };
  CHECK((splits.size() == 3 && near(splits[1], 1.0 / 3) && near(splits[2], 1.0 / 3) && near(splits[3], 1.0 / 3)));
  CHECK(
      (inverse.size() == 3 && near(inverse[1], 6.0 / 11) && near(inverse[2], 3.0 / 11) && near(inverse[3], 2.0 / 11)));
  CHECK(geometric.size() == 10);
  for (std::uint64_t n = 1; n < 10; ++n) CHECK(near(geometric[n], 0.2 * std::pow(0.8, n - 1)));
  CHECK(near(geometric[10], std::pow(0.8, 9)));
  CHECK((near(swapped, 0.5) && near(cut, 0.5)));
  for (std::uint32_t word = 0; word < 5; ++word) CHECK(near(first[word], 0.2));
}

TEST_CASE("bert: known samples of the program's own order", "[bert]") {
  // Stored: they must stay what they are, on every machine and in every version.
  MemoryCorpus corpus = large_bert_corpus();
  const BertSamples samples(corpus.corpus(), corpus.vocabulary(), own_bert_options(corpus, 128));
  std::uint64_t sum = 0;
  for (std::uint64_t i = 0; i < 300; ++i) {
    for (const auto& [name, values] : fields_of(samples.make(i))) sum = checksum(values, sum);
  }
  CHECK(sum == 10788964689777630442u);
}

TEST_CASE("bert: short sequences and incomplete vocabularies are refused", "[bert]") {
  MemoryCorpus corpus = large_bert_corpus();
  BertSampleOptions options = own_bert_options(corpus, 5);
  const BertSamples shortest(corpus.corpus(), corpus.vocabulary(), options);
  float masked = 0;  // at least one token, unless the word is longer
  for (std::uint64_t i = 0; i < 50; ++i) {
    const BertSample sample = shortest.make(i);
    CHECK(sample.length == 5);
    masked += sample.weights[1] + sample.weights[3];
  }
  CHECK(masked > 25);
  options.sequence_length = 4;
  require_error(ErrorKind::configuration, {"model.sequence_length = 4 is too short for [CLS] A [SEP] B [SEP]"},
                [&] { BertSamples(corpus.corpus(), corpus.vocabulary(), options); });
  options.sequence_length = 64;
  for (std::int32_t* id : {&corpus.special_ids().cls, &corpus.special_ids().mask}) {
    const std::int32_t was = std::exchange(*id, -1);
    require_error(ErrorKind::data, {"lacks one of the tokens [CLS], [SEP], [MASK], [PAD]"},
                  [&] { BertSamples(corpus.corpus(), corpus.vocabulary(), options); });
    *id = was;
  }
}

namespace {

constexpr BatchField kBertFields[] = {{.name = "tokens", .view = &Rows::tokens},
                                      {.name = "types", .view = &Rows::types},
                                      {.name = "lengths", .view = &Rows::lengths, .shape = FieldShape::samples},
                                      {.name = "targets", .view = &Rows::targets},
                                      {.name = "weights", .view = &Rows::weights, .type = DType::f32},
                                      {.name = "labels", .view = &Rows::labels, .shape = FieldShape::samples}};

template <class T>
std::vector<T> column_of(ConstTensor field, std::int64_t rows, std::int64_t column) {
  std::vector<T> values;
  for (std::int64_t i = 0; i < rows; ++i) values.push_back(field.as<T>()[i * (field.elements() / rows) + column]);
  return values;
}

}  // namespace

TEST_CASE("bert: fields and loss divisors of a batch with filling samples", "[bert]") {
  constexpr std::int64_t kRows = 40;
  MemoryCorpus corpus = large_bert_corpus();
  BertSamples samples(corpus.corpus(), corpus.vocabulary(), own_bert_options(corpus, kRows));
  REQUIRE(samples.terms() == 2);
  const BatchLayout layout{.fields = {std::begin(kBertFields), std::end(kBertFields)},
                           .sizes = {.rows = {kRows}, .samples = 4}};
  CHECK_FALSE(samples.count_per_sample(layout.sizes));
  const BatchPlan plan = [](std::int64_t step) { return GlobalBatch{.samples = step == 0 ? 4 : 0, .padding = 1}; };
  BatchReader batches(samples, layout, {.most_samples = 4}, plan, 0);
  const StepBatch& batch = batches.next();
  double masked = 0;
  for (std::int64_t j = 0; j < 4; ++j) {
    const BertSample sample = samples.make(static_cast<std::uint64_t>(j));
    const Rows& rows = batch.micro_batches.at(0).main;
    CHECK(column_of<std::int32_t>(rows.tokens, kRows, j) == sample.tokens);
    CHECK(column_of<std::int32_t>(rows.types, kRows, j) == sample.types);
    CHECK(column_of<std::int32_t>(rows.targets, kRows, j) == sample.targets);
    CHECK(column_of<std::int32_t>(rows.lengths, 1, j) == Ids{sample.length});
    const bool counts = j < 3;  // the last only fills the batch: no loss may hear of it
    CHECK(column_of<float>(rows.weights, kRows, j) == (counts ? sample.weights : std::vector<float>(kRows, 0.0f)));
    CHECK(column_of<std::int32_t>(rows.labels, 1, j) == Ids{counts ? sample.label : -1});
    for (const float weight : sample.weights) masked += counts ? weight : 0;
  }
  CHECK(batch.loss_counts == std::vector<double>{masked, 3});
}

TEST_CASE("bert: what is shown has the masked places with what was there", "[bert]") {
  MemoryCorpus corpus = large_bert_corpus();
  BertSamples samples(corpus.corpus(), corpus.vocabulary(), own_bert_options(corpus, 40));
  const BertSample sample = samples.make(3);
  const std::vector<NamedTokens> shown = samples.show(3);
  REQUIRE(shown.size() == 5);
  CHECK((shown[0].name == "tokens" && shown[1].name == "types" && shown[2].name == "masked"));
  Ids text = shown[0].ids;
  REQUIRE(shown[2].ids.size() == shown[3].ids.size());
  for (std::size_t i = 0; i < shown[2].ids.size(); ++i)
    text.at(static_cast<std::size_t>(shown[2].ids[i])) = shown[3].ids[i];
  CHECK(text == unmasked(sample));
  CHECK(shown[4].ids == Ids{sample.label});
}

TEST_CASE("bert: the samples of one pass are counted also where there are none", "[bert]") {
  MemoryCorpus corpus = large_bert_corpus();
  BertSampleOptions options = own_bert_options(corpus, 40);
  CHECK(BertSamples::samples_of_a_pass(corpus.corpus(), options) ==
        BertSamples(corpus.corpus(), corpus.vocabulary(), options).samples());
  options.order = SentenceOrder::megatron;
  const std::uint64_t pass = BertSamples::samples_of_a_pass(corpus.corpus(), options);
  options.wanted_samples = 1;
  CHECK(BertSamples(corpus.corpus(), corpus.vocabulary(), options).samples() == pass);
  options.wanted_samples = 3 * pass;
  CHECK(BertSamples::samples_of_a_pass(corpus.corpus(), options) == pass);
  options.end_document = 0;
  CHECK(BertSamples::samples_of_a_pass(corpus.corpus(), options) == 0);
}

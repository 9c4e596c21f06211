// Tests of the sentences that make up samples: Megatron's maps against megatron-core, the program's own by their rules.
#include <set>

#include "data/samples/sentence_corpus.h"
#include "support/catch.h"
#include "support/require_error.h"

using namespace megatron;
using namespace megatron::test;
using nlohmann::json;

namespace {

MemoryCorpus small_corpus() {
  return {{{3, 4, 5, 2}, {7}, {}, {600, 2, 2}, {1, 1, 1, 1, 1}}, 50, 5, 3, 1};
}

SentenceMapOptions options_of(const MemoryCorpus& corpus, SentenceOrder order, std::uint64_t fewest) {
  return {.end_document = corpus.documents(),
          .most_tokens = 6,
          .fewest_sentences = fewest,
          .short_probability = 0,
          .order = order,
          .seed = 5};
}

}  // namespace

TEST_CASE("sentences: numpy's random, geometric and choice", "[bert]") {
  for (const json& row : golden_samples().at("draws")) {
    INFO("seed " << row.at("seed"));
    NumpyRandom random(row.at("seed").get<std::uint32_t>());
    for (const json& value : row.at("random")) CHECK(random.random() == value.get<double>());
    for (const json& value : row.at("geometric")) CHECK(random.geometric(0.2) == value.get<std::uint64_t>());
    const auto probabilities = row.at("probabilities").get<std::vector<double>>();
    for (const json& value : row.at("choice")) CHECK(random.choice(probabilities) + 1 == value.get<std::uint64_t>());
  }
}

TEST_CASE("sentences: Megatron's map, element by element", "[bert]") {
  int in_full = 0, by_sums = 0;
  for (const char* family : {"bert", "t5"}) {
    for (const json& row : golden_samples().at(family)) {
      INFO(family << " " << row.at("corpus") << ", length " << row.at("sequence_length"));
      const bool bert = row.contains("sentence_order");
      MemoryCorpus corpus(golden_samples().at("corpora").at(row.at("corpus").get<std::string>()), 0);
      const SentenceMap map(corpus.corpus(),
                            {.first_document = row.at("first"),
                             .end_document = row.at("end"),
                             .most_tokens = row.at("sequence_length").get<std::int64_t>() - (bert ? 3 : 2),
                             .fewest_sentences = bert && row.at("sentence_order").get<bool>() ? 2u : 1u,
                             .short_probability = row.at("short_probability"),
                             .order = SentenceOrder::megatron,
                             .seed = row.at("seed"),
                             .wanted_samples = row.at("wanted")});
      REQUIRE(map.samples() == row.at("samples").get<std::uint64_t>());
      const std::vector<std::uint64_t> flat = flat_map(map);
      CHECK(checksum(flat) == row.at("map_sum").get<std::uint64_t>());
      ++by_sums;
      if (!row.contains("map")) continue;
      ++in_full;
      for (std::size_t i = 0; i < row.at("map").size(); ++i) {
        CHECK(std::vector<std::uint64_t>(flat.begin() + 3 * static_cast<std::ptrdiff_t>(i),
                                         flat.begin() + 3 * static_cast<std::ptrdiff_t>(i + 1)) ==
              row.at("map")[i].get<std::vector<std::uint64_t>>());
      }
    }
  }
  CHECK((in_full > 15 && by_sums == 28));
}

TEST_CASE("sentences: the ends of samples by hand", "[bert]") {
  MemoryCorpus corpus = small_corpus();
  const SentenceMap pairs(corpus.corpus(), options_of(corpus, SentenceOrder::sequential, 2));
  // 3 + 4 tokens are enough for 6; a document's last sentence is never left alone; long sentences stay.
  CHECK(flat_map(pairs) == std::vector<std::uint64_t>{0, 2, 6, 2, 4, 6, 5, 8, 6, 8, 13, 6});
  const SentenceMap singles(corpus.corpus(), options_of(corpus, SentenceOrder::sequential, 1));
  CHECK(flat_map(singles) == std::vector<std::uint64_t>{0, 2, 6, 2, 4, 6, 4, 5, 6, 5, 6, 6, 6, 8, 6, 8, 13, 6});
  CHECK(singles.description() == "epoch: 6 samples per pass, an index of 0.0 MiB on ranks that read data");
  SentenceMapOptions megatron = options_of(corpus, SentenceOrder::megatron, 2);
  megatron.wanted_samples = 4;
  const SentenceMap twice(corpus.corpus(), megatron);  // without the document of a long sentence
  CHECK((twice.samples() == 6 && twice.passes() == 2));
  CHECK(twice.description() == "megatron: made for 4 samples, 2 passes, an index of 0.0 MiB on ranks that read data");
}

TEST_CASE("sentences: every pass visits all samples once, each in another order", "[bert]") {
  MemoryCorpus corpus(golden_samples().at("corpora").at("ragged"), 0);
  SentenceMapOptions options = options_of(corpus, SentenceOrder::shuffled, 2);
  options.most_tokens = 20;
  options.short_probability = 0.3;
  const SentenceMap map(corpus.corpus(), options);
  options.order = SentenceOrder::sequential;
  const SentenceMap in_order(corpus.corpus(), options);
  const std::uint64_t n = map.samples();
  REQUIRE((n > 40 && in_order.samples() == n));
  const auto key = [](const SentenceMap::Entry& entry) {
    return entry.first << 32 | entry.end << 8 | static_cast<std::uint64_t>(entry.target);
  };
  std::vector<std::uint64_t> sorted, pass[2];
  std::uint64_t short_ones = 0;
  for (std::uint64_t i = 0; i < n; ++i) {
    sorted.push_back(key(in_order.at(i)));
    short_ones += in_order.at(i).target < 20 ? 1 : 0;
    CHECK((in_order.at(i).target >= 2 && in_order.at(i) == in_order.at(i + 3 * n)));
    for (std::uint64_t p : {0, 1}) pass[p].push_back(key(map.at(p * n + i)));
  }
  CHECK((short_ones > n / 6 && short_ones < n / 2));
  CHECK(std::is_sorted(sorted.begin(), sorted.end()));
  CHECK((pass[0] != sorted && pass[0] != pass[1]));
  for (auto& visited : pass) std::sort(visited.begin(), visited.end());
  CHECK((pass[0] == sorted && pass[1] == sorted));
}

TEST_CASE("sentences: targets do not depend on where the split is", "[bert]") {
  MemoryCorpus corpus(golden_samples().at("corpora").at("ragged"), 0);
  SentenceMapOptions options = options_of(corpus, SentenceOrder::sequential, 2);
  options.short_probability = 0.5;
  options.most_tokens = 30;
  const std::vector<std::uint64_t> whole = flat_map({corpus.corpus(), options});
  options.first_document = 10;
  const std::vector<std::uint64_t> rest = flat_map({corpus.corpus(), options});
  REQUIRE(rest.size() > 30);
  CHECK(std::equal(rest.rbegin(), rest.rend(), whole.rbegin()));
}

TEST_CASE("sentences: what cannot be sampled is refused", "[bert]") {
  MemoryCorpus corpus({{7}, {}, {600}, {513, 2}}, 50, 5, 3, 1);
  SentenceMapOptions options = options_of(corpus, SentenceOrder::megatron, 2);
  CHECK(SentenceMap(corpus.corpus(), options).samples() == 0);  // none are wanted
  options.wanted_samples = 1;
  require_error(ErrorKind::data,
                {"documents 0 to 4 make no sample: a document needs 2 sentences, and in Megatron's order"},
                [&] { SentenceMap(corpus.corpus(), options); });
  options.wanted_samples = (std::uint64_t{1} << 36) + 1;
  require_error(ErrorKind::data, {"an index of 68719476737 samples"}, [&] { SentenceMap(corpus.corpus(), options); });
  options.wanted_samples = 1;
  options.end_document = 3;
  options.order = SentenceOrder::shuffled;
  require_error(ErrorKind::data, {"documents 0 to 3 make no sample: a document needs 2 sentences;"},
                [&] { SentenceMap(corpus.corpus(), options); });
  options.order = SentenceOrder::megatron;
  options.fewest_sentences = 1;
  const SentenceMap two(corpus.corpus(), options);
  CHECK(two.at(1).target == 6);
  require_error(ErrorKind::configuration, {"sample 2 was asked for, but Megatron's order made for 1 samples has 2"},
                [&] { two.at(2); });
}

// The splits of data that is made of sentences: whole documents, one pass' samples, blends, and what is refused.
#include <set>

#include "planning/dry_run/split_report.h"
#include "support/catch.h"
#include "support/data_support.h"
#include "training/datasets/datasets.h"
#include "training/step/compatibility.h"

using namespace megatron;
using namespace megatron::test;

namespace {

constexpr std::int32_t kFirstWord = 5;

Vocabulary vocabulary() {
  Vocabulary vocabulary{"bert-uncased", 7, 200, 1};
  vocabulary.special = {.cls = 2, .sep = 3, .mask = 4, .pad = 0, .eos = 1};
  vocabulary.continues.assign(vocabulary.size, 0);
  return vocabulary;
}

/// Documents of four sentences of six tokens, all of the document's own; every tenth has one sentence alone.
void make_texts(const std::string& prefix, int documents, std::uint64_t set_hash = 99,
                const Vocabulary& of = vocabulary()) {
  TokenShardWriter writer(prefix + ".tmp", of, Sentences::kept);
  for (int d = 0; d < documents; ++d) {
    const std::vector<std::uint64_t> sentences(d % 10 == 9 ? 1 : 4, 6);
    writer.add_document(std::vector<std::int32_t>(6 * sentences.size(), kFirstWord + d), sentences);
  }
  writer.finish();
  publish_shard(prefix + ".tmp", prefix, 0, 1, set_hash);
}

struct Texts {
  ShardFolder folder;
  Config config;

  Texts() {
    make_texts(folder.file("p"), 100);
    config.model.family = "bert";
    config.model.sequence_length = 16;  // 13 tokens of text: three sentences, or two of a short sample
    config.train.steps = 50;
    config.train.global_batch_size = 4;
    config.train.evaluate_every = 20;
    config.train.evaluate_steps = 2;
    config.data.train = folder.file("p");
    config.data.split = "80,20";
    config.data.short_probability = 0;
  }
};

/// The documents that the samples [first, first + count) are made of, as far as tokens are not masked.
std::set<std::int32_t> documents_of(const SampleSet& set, std::uint64_t first, std::uint64_t count) {
  std::set<std::int32_t> documents;
  for (std::uint64_t i = first; i < first + count; ++i) {
    const std::vector<NamedTokens> shown = set.samples->show(i);
    for (const std::int32_t target : shown.at(3).ids)
      documents.insert(target - kFirstWord);  // masked tokens as they were
  }
  return documents;
}

}  // namespace

TEST_CASE("sentences: documents stay whole and a pass has the map's samples", "[datasets]") {
  Texts texts;
  const Datasets datasets(texts.config);
  CHECK_FALSE(datasets.cut_by_tokens());
  CHECK(datasets.train_parts()[0].end_document == 80);
  CHECK(datasets.validation_parts()[0].first_document == 80);
  // Each of the 72 documents of four sentences: 18 tokens are enough for the first sample, and one sentence is not
  // left.
  CHECK(datasets.facts().train_samples == 72);
  CHECK(datasets.train().samples->samples() == 72);
  REQUIRE(datasets.validation());
  CHECK(datasets.validation()->samples->samples() == 18);
  CHECK_FALSE(datasets.test());
  std::set<std::int32_t> trained = documents_of(datasets.train(), 0, 72);
  CHECK(trained.size() == 72);
  CHECK(*trained.rbegin() == 78);
  CHECK(documents_of(datasets.validation().value(), 0, 3) == std::set<std::int32_t>{80, 81, 82});  // in order
  CHECK(datasets.first_validation_sample(40) == 0);
  CHECK(evaluation_facts(datasets).at("validation").at("sets")[0] == "0000000000000063, documents 80 to 100");
  const SplitReport report = report_splits(texts.config, datasets);
  CHECK_THAT(report.lines.at(0), Contains(": 72 samples per pass"));
  CHECK_THAT(report.lines.at(1), Contains(": 18 samples; each evaluation takes the first 8"));
}

TEST_CASE("sentences: a mask's probability is part of the order", "[datasets]") {
  Texts texts;
  const nlohmann::json before = order_facts(texts.config, Datasets(texts.config));
  texts.config.data.mask_probability = 0.3;
  const nlohmann::json after = order_facts(texts.config, Datasets(texts.config));
  REQUIRE(compare_facts(before, after).size() == 1);
  CHECK(compare_facts(before, after)[0].key == "mask_probability");
}

TEST_CASE("sentences: blends, each set with an order and masks of its own", "[datasets]") {
  Texts texts;
  make_texts(texts.folder.file("q"), 9, 98);
  texts.config.data.train.parts = {{texts.folder.file("p"), 1}, {texts.folder.file("q"), 1}};
  texts.config.data.split = "1";
  const Datasets datasets(texts.config);
  CHECK(datasets.facts().train_samples == 90 + 9);
  CHECK(datasets.train().samples->samples() == 99);
  CHECK(datasets.train().samples->terms() == 2);
  CHECK_THAT(datasets.train().samples->description(), Contains("50 % " + texts.folder.file("q")));
  // The second set leaves validation without a sample: told, and left out.
  texts.config.data.split = "89,11";
  const Datasets split(texts.config);
  REQUIRE(split.validation());
  REQUIRE(split.notes().empty());
  texts.config.data.split = "95,5";
  const Datasets less(texts.config);
  CHECK(less.notes().size() == 1);
  CHECK(less.validation()->samples->samples() == 4);
}

TEST_CASE("sentences: Megatron's sample counts", "[datasets]") {
  Texts texts;
  texts.config.data.order = GENERATE("megatron", "megatron_core");
  const Datasets datasets(texts.config);
  CHECK(datasets.order_samples() == 200);
  CHECK(datasets.facts().train_samples == 72);
  CHECK(datasets.train().samples->samples() == 216);  // whole passes
  CHECK(datasets.validation()->samples->samples() == 36);
  CHECK(datasets.first_validation_sample(40) == 8);
}

TEST_CASE("sentences: unfit data is refused with the command that makes it", "[datasets]") {
  Texts texts;
  const auto refused = [&](const std::string& prefix, const std::vector<std::string>& parts) {
    texts.config.data.train = texts.folder.file(prefix);
    require_error(ErrorKind::data, parts, [&] { const Datasets datasets(texts.config); });
  };
  make_shard(texts.folder.file("plain"), Documents(20, {7, 7, 7, 7}), 0, 1, vocabulary());
  refused("plain", {"plain: these shards do not know where sentences begin", "--split-sentences"});
  Vocabulary unmasked = vocabulary();
  unmasked.special.mask = -1;
  make_texts(texts.folder.file("unmasked"), 20, 99, unmasked);
  refused("unmasked", {"unmasked: its vocabulary (\"bert-uncased\") lacks the tokens", "--vocab-file vocab.txt"});
  Vocabulary unjoined = vocabulary();
  unjoined.continues.clear();
  make_texts(texts.folder.file("unjoined"), 20, 99, unjoined);
  refused("unjoined", {"or what continues a word"});
  texts.config.data.split = "0.04,99.96";
  make_texts(texts.folder.file("few"), 10);
  refused("few", {"few: the training split has 0 of its 10 documents", "two sentences of one document"});
}

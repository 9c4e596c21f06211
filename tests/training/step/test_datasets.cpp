// The samples of an input file's three splits, in the program's order and in Megatron's.
#include "training/datasets/datasets.h"

#include "data/samples/blend.h"
#include "data/samples/megatron_order.h"
#include "data/samples/next_token_samples.h"
#include "data/shards/split.h"
#include "planning/dry_run/dry_run.h"
#include "support/data_support.h"
#include "training/step/trainer.h"

using namespace megatron;
using namespace megatron::test;

namespace {

/// 100 documents of 10 tokens: 97 are for training, 3 for validation, none for the test; by tokens 969, 30 and 1.
struct Corpus {
  ShardFolder folder;
  Config config;

  Corpus() {
    make_shard(folder.file("p"), Documents(100, std::vector<std::int32_t>(10, 7)));
    make_shard(folder.file("q"), Documents(3, std::vector<std::int32_t>(4, 8)));
    config.model.sequence_length = 8;
    config.train.steps = 100;
    config.train.global_batch_size = 4;
    config.train.evaluate_every = 30;
    config.train.evaluate_steps = 2;
    config.data.train = folder.file("p");
  }
};

const MegatronOrder& megatron_order(const SampleSet& set) {
  return dynamic_cast<const MegatronOrder&>(*set.order);
}

}  // namespace

TEST_CASE("datasets: the program's order", "[datasets]") {
  Corpus corpus;
  const Datasets datasets(corpus.config);
  CHECK(datasets.facts().train_samples == 121);  // (969 - 1) / 8
  CHECK(datasets.train().order->samples() == 121);
  CHECK(epochs_of(121, datasets.facts()) == 1);
  REQUIRE(datasets.validation());
  CHECK(datasets.validation()->order->samples() == 3);
  CHECK_FALSE(datasets.test());
  for (const std::int64_t step : {1, 30, 60, 100}) CHECK(datasets.first_validation_sample(step) == 0);
}

TEST_CASE("datasets: Megatron's sample counts and evaluations that continue", "[datasets]") {
  Corpus corpus;
  Config& config = corpus.config;
  config.data.order = "megatron";
  config.data.test = corpus.folder.file("q");
  const Datasets datasets(config);
  CHECK(datasets.order_samples() == 400);
  CHECK(datasets.train_documents() == 97);
  const MegatronOrder& train = megatron_order(datasets.train());
  CHECK(train.wanted_samples() == 400);
  CHECK(train.epochs() == 4);                    // 3201 tokens of 970
  CHECK(epochs_of(363, datasets.facts()) == 3);  // as in the program's order
  REQUIRE(datasets.validation());
  CHECK(megatron_order(*datasets.validation()).wanted_samples() == (100 / 30 + 1) * 2 * 4);
  CHECK(megatron_order(*datasets.validation()).document_index(0) >= 97);
  REQUIRE(datasets.test());
  CHECK(megatron_order(*datasets.test()).wanted_samples() == 2 * 4);
  CHECK(datasets.first_validation_sample(30) == 0);
  CHECK(datasets.first_validation_sample(60) == 8);
  CHECK(datasets.first_validation_sample(90) == 16);
  CHECK(datasets.first_validation_sample(100) == 24);  // at the end
  CHECK(datasets.first_validation_sample(70) == 16);   // a run that ends there without being Megatron's whole run
  std::vector<TokenRange> ranges;
  datasets.validation()->order->locate(31, ranges);  // the last one there is a need for

  config.train.steps = 90;  // ends on an interval: Megatron evaluates twice there, this program as Megatron at its end
  CHECK(Datasets(config).first_validation_sample(90) == 24);
  config.train.evaluate_every = 0;
  CHECK(Datasets(config).first_validation_sample(90) == 0);
  CHECK(megatron_order(*Datasets(config).validation()).wanted_samples() == 8);
}

TEST_CASE("datasets: lengths of training documents are told apart but not shards", "[datasets]") {
  Corpus corpus;
  corpus.config.data.order = "megatron";
  const auto hash = [&](const std::string& prefix) {
    corpus.config.data.train = corpus.folder.file(prefix);
    const Datasets datasets(corpus.config);
    return order_facts(corpus.config, datasets).at("document_lengths").get<std::uint64_t>();
  };
  Documents documents(100, std::vector<std::int32_t>(10, 7));
  const std::uint64_t original = hash("p");
  make_shard(corpus.folder.file("r"), Documents(documents.begin(), documents.begin() + 30), 0, 2);
  make_shard(corpus.folder.file("r"), Documents(documents.begin() + 30, documents.end()), 1, 2);
  CHECK(hash("r") == original);
  documents[98].push_back(7);  // in the validation split
  make_shard(corpus.folder.file("s"), documents);
  CHECK(hash("s") == original);
  documents[3].push_back(7);  // as many documents and tokens as before
  documents[4].pop_back();
  make_shard(corpus.folder.file("t"), documents);
  CHECK(hash("t") != original);
}

TEST_CASE("datasets: Megatron's evaluations after each pass with a growing batch", "[datasets]") {
  Corpus corpus;
  Config& config = corpus.config;
  config.data.order = "megatron";
  config.data.order_samples = 400;
  config.train.steps = 10;
  config.train.evaluate_every = 0;
  config.train.evaluate_every_epoch = true;
  config.train.batch_ramp_up = {2, 2, 60};  // 2 samples up to 60, in 30 steps, then 4
  const Datasets datasets(config);
  // A pass has 121 samples: done with steps 46 (124), 76 (244) and 106 (364); the order ends with step 115 (400).
  CHECK(megatron_order(*datasets.validation()).wanted_samples() == (3 + 1) * 2 * 4);
  CHECK(datasets.first_validation_sample(46) == 0);
  CHECK(datasets.first_validation_sample(76) == 8);
  CHECK(datasets.first_validation_sample(106) == 16);
  CHECK(datasets.first_validation_sample(107) == 24);
  CHECK(datasets.first_validation_sample(115) == 24);
}

TEST_CASE("datasets: a dry run gives the memory of Megatron's order", "[datasets]") {
  Corpus corpus;
  Config& config = corpus.config;
  config.model.layers = 1;
  config.model.hidden_size = 8;
  config.model.attention_heads = 1;
  config.train.micro_batch_size = 1;
  CHECK(dry_run(config, 1).find("data.order") == std::string::npos);
  config.data.order = "megatron";
  config.data.order_samples = std::int64_t{1} << 30;
  CHECK(dry_run(config, 1).find("data.order = megatron: made for 1073741824 samples, 8855603 passes") !=
        std::string::npos);
  config.data.train = corpus.folder.file("absent");
  CHECK(dry_run(config, 1).find("made for 1073741824 samples, an index of 4096.0 MiB, and 4 bytes per document") !=
        std::string::npos);
}

TEST_CASE("datasets: a blend of sets, in the program's order", "[datasets]") {
  Corpus corpus;
  Config& config = corpus.config;
  make_shard(corpus.folder.file("r"), Documents(50, std::vector<std::int32_t>(20, 9)));
  config.data.train.parts = {{corpus.folder.file("p"), 3}, {corpus.folder.file("r"), 1}};
  const Datasets datasets(config);
  CHECK(datasets.facts().train_samples == 121 + 121);  // (969 - 1) / 8 of each
  CHECK(datasets.train().order->samples() == 121 + 121);
  CHECK(datasets.blend_weights() == std::vector<double>{0.75, 0.25});
  SampleReader reader(*datasets.train().source, *datasets.train().order);
  int of_p = 0;
  for (std::uint64_t i = 0; i < 400; ++i) of_p += reader.read(i)[0] == 7 ? 1 : 0;
  CHECK(of_p == 300);
  REQUIRE(datasets.validation());
  SampleReader validation(*datasets.validation()->source, *datasets.validation()->order);
  CHECK(validation.read(0)[0] == 7);
  CHECK(validation.read(1)[0] == 9);  // 0.25 and 0.25 - 1 are missing

  // One of weight 1 is as good as its path.
  config.data.train.parts.resize(1);
  CHECK(Datasets(config).train().order->samples() == 121);
  CHECK(Datasets(config).blend_weights().empty());
}

TEST_CASE("datasets: a blend in Megatron's order asks for half a percent more", "[datasets]") {
  Corpus corpus;
  Config& config = corpus.config;
  make_shard(corpus.folder.file("r"), Documents(50, std::vector<std::int32_t>(20, 9)));
  config.data.order = "megatron";
  config.data.train.parts = {{corpus.folder.file("p"), 3}, {corpus.folder.file("r"), 1}};
  config.data.test.parts = {{corpus.folder.file("r"), 1}, {corpus.folder.file("p"), 1}};
  const Datasets datasets(config);
  CHECK(datasets.train().order->samples() == 400);
  CHECK(datasets.train().order->description().find("made for 302 samples") != std::string::npos);  // 300 · 1.005
  CHECK(datasets.train().order->description().find("made for 101 samples") != std::string::npos);
  CHECK(datasets.test()->order->description().find("made for 5 samples") != std::string::npos);  // its share of 8
  std::vector<TokenRange> ranges;
  for (std::uint64_t i = 0; i < 400; ++i) datasets.train().order->locate(i, ranges);
  const auto first = order_facts(config, datasets);
  CHECK(first.at("train_documents") == 97 + split_rounding_parts(50, {969, 30, 0})[1]);

  // Each set's own samples are those of Megatron's order of that set alone.
  Config alone = config;
  alone.data.train = corpus.folder.file("r");
  alone.data.order_samples = 101;
  alone.train.steps = 10;
  const Datasets of_r(alone);
  std::vector<TokenRange> own;
  const BlendIndex index({0.75, 0.25});
  for (std::uint64_t i = 0; i < 400; ++i) {
    const auto [set, sample] = index.at(i);
    if (set == 0) continue;
    datasets.train().order->locate(i, ranges);
    of_r.train().order->locate(sample, own);
    for (TokenRange& range : own) range.first += 1000;  // after p
    CHECK(ranges == own);
  }

  // Other weights are another order, and the checkpoint's facts say so.
  config.data.train.parts[1].weight = 2;
  CHECK(order_facts(config, Datasets(config)).at("blend_weights") != first.at("blend_weights"));
  config.train.steps = 101;
  config.data.order_samples = 400;
  require_error(ErrorKind::configuration, {"404 samples", "order_samples = 400"}, [&] { Datasets wrong(config); });
}

TEST_CASE("datasets: the sequence of a blend's sets is part of its order", "[datasets]") {
  Corpus corpus;
  Config& config = corpus.config;
  const std::string p = corpus.folder.file("p"), r = corpus.folder.file("r"), moved = corpus.folder.file("moved");
  for (const std::string& same : {r, moved}) {
    make_shard(same, Documents(100, std::vector<std::int32_t>(10, 9)), 0, 1, small_vocabulary(), 98);
  }
  config.data.order = GENERATE("epoch", "megatron");
  const auto facts = [&](const std::string& first, const std::string& second) {
    config.data.train.parts = {{first, 1}, {second, 1}};
    return order_facts(config, Datasets(config));
  };
  CHECK(facts(p, moved) == facts(p, r));
  const std::vector<FactDifference> changes = compare_facts(facts(p, r), facts(r, p));
  REQUIRE(changes.size() == 1);
  CHECK(changes[0].key == "blend_sets");
  CHECK(changes[0].saved == R"(["0000000000000063","0000000000000062"])");
  CHECK(changes[0].current == R"(["0000000000000062","0000000000000063"])");
}

TEST_CASE("datasets: an empty split part is skipped and tokenizers must agree", "[datasets]") {
  Corpus corpus;
  Config& config = corpus.config;
  config.data.train.parts = {{corpus.folder.file("p"), 1}, {corpus.folder.file("q"), 1}};
  config.model.sequence_length = 3;
  const Datasets datasets(config);
  REQUIRE(datasets.validation());  // q's 3 documents are all for training
  SampleReader reader(*datasets.validation()->source, *datasets.validation()->order);
  for (std::uint64_t i = 0; i < 5; ++i) CHECK(reader.read(i)[0] == 7);
  REQUIRE(datasets.notes().size() == 1);  // the test split has nothing left at all, which is not said here
  CHECK(datasets.notes()[0].find("validation: data.split leaves " + corpus.folder.file("q")) == 0);
  make_shard(corpus.folder.file("other"), {{1, 2, 3, 4, 5, 6}}, 0, 1, small_vocabulary(300));
  config.data.train.parts[1].path = corpus.folder.file("other");
  require_error(ErrorKind::data, {"another tokenizer", "other"}, [&] { Datasets wrong(config); });
  config.data.train.parts[1].path = corpus.folder.file("q");
  config.model.sequence_length = 20;
  require_error(ErrorKind::data, {corpus.folder.file("q"), "12 tokens"}, [&] { Datasets wrong(config); });
}

TEST_CASE("datasets: a run's length becomes Megatron's sample count", "[datasets]") {
  Corpus corpus;
  Config& config = corpus.config;
  config.data.order = "megatron";
  config.train.steps = 0;
  config.train.samples = 399;  // a rest of three samples: Megatron's --train-samples counts it
  CHECK(Datasets(config).order_samples() == 399);
  config.train.samples = 0;
  config.train.epochs = 2;
  CHECK(Datasets(config).order_samples() == 242);
  config.train.epochs = 0;
  config.train.steps = 10;
  config.data.order_samples = 400;
  const Datasets shorter(config);
  CHECK(shorter.order_samples() == 400);
  CHECK(megatron_order(*shorter.validation()).wanted_samples() == (100 / 30 + 1) * 2 * 4);
  config.train.steps = 1000;
  require_error(ErrorKind::configuration, {"4000 samples", "order_samples = 400", "order of 484"},
                [&] { Datasets datasets(config); });
  config.train.steps = 10;
  config.train.evaluate_steps = 1'000'000'000'000;
  require_error(ErrorKind::data, {"2^36"}, [&] { Datasets datasets(config); });
}

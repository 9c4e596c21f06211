// The samples of an input file's three splits, in the program's order and in Megatron's.
#include "train/datasets.h"

#include "data/data_support.h"
#include "data/megatron_order.h"
#include "train/dry_run.h"
#include "train/trainer.h"

using namespace megatron;
using namespace megatron::test;

namespace {

/// 100 documents of 10 tokens: 97 are for training, 3 for validation, none for the test.
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
  CHECK(datasets.facts().train_samples == 121);  // (970 - 1) / 8
  CHECK(datasets.train().order->samples() == 121);
  CHECK(epochs_of(121, datasets.facts()) == 1);
  REQUIRE(datasets.validation());
  CHECK(datasets.validation()->order->samples() == 3);
  CHECK_FALSE(datasets.test());
  for (const std::int64_t step : {1, 30, 60, 100}) CHECK(datasets.first_validation_sample(step) == 0);
}

TEST_CASE("datasets: Megatron's sample counts, and evaluations that go on where the last one ended", "[datasets]") {
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
  std::vector<TokenRange> pieces;
  datasets.validation()->order->locate(31, pieces);  // the last one there is a need for

  config.train.steps = 90;  // ends on an interval: Megatron evaluates twice there, this program as Megatron at its end
  CHECK(Datasets(config).first_validation_sample(90) == 24);
  config.train.evaluate_every = 0;
  CHECK(Datasets(config).first_validation_sample(90) == 0);
  CHECK(megatron_order(*Datasets(config).validation()).wanted_samples() == 8);
}

TEST_CASE("datasets: the lengths of the training documents are told apart, their shards are not", "[datasets]") {
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
  documents[98].push_back(7);  // of the validation split
  make_shard(corpus.folder.file("s"), documents);
  CHECK(hash("s") == original);
  documents[3].push_back(7);  // as many documents and tokens as before
  documents[4].pop_back();
  make_shard(corpus.folder.file("t"), documents);
  CHECK(hash("t") != original);
}

TEST_CASE("datasets: where Megatron's evaluations after each pass begin, while the batch grows", "[datasets]") {
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

TEST_CASE("datasets: a dry run says what memory Megatron's order takes, with and without the data", "[datasets]") {
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
  CHECK(dry_run(config, 1).find("made for 1073741824 samples, an index of 4096.0 MiB, and 4 bytes a document") !=
        std::string::npos);
}

TEST_CASE("datasets: how a run's length becomes the sample count of Megatron's order", "[datasets]") {
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

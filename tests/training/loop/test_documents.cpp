// Whole runs over documents and with other losses, from shards to metrics: on every schedule and on a device,
// the numbers of one rank; and what is refused. That the numbers are right: tests/golden/test_losses.cpp.
#include <cmath>

#include "backend/ops/backends.h"
#include "config/schema/schema.h"
#include "distributed/comm/thread_communicator.h"
#include "support/catch.h"
#include "support/loop_on_threads.h"
#include "training/datasets/losses.h"
#include "training/step/grid.h"
#include "training/step/trainer.h"

using namespace megatron;
using namespace megatron::test;

namespace {

struct DocumentRun {
  ShardFolder folder;
  Config config = tiny_config();
  int runs = 0;

  DocumentRun() {
    config.data.train = make_corpus(folder);  // with a document of 11 to 70 tokens in samples of 16
    config.data.split = "80,20";
    config.data.reset_attention_mask = config.data.reset_position_ids = config.data.eod_mask_loss = true;
    config.train.steps = 3;
    config.train.evaluate_every = 2;
    config.train.evaluate_steps = 2;
  }
  std::vector<nlohmann::json> metrics() {
    config.run.directory = folder.file("run" + std::to_string(++runs));
    const LoopResult result = run_loop(config);
    for (const std::string& told : result.told) REQUIRE(told.empty());
    return result.metrics;
  }
};

// Losses and norms of the steps and losses of the evaluations, in order.
std::vector<double> numbers_of(const std::vector<nlohmann::json>& metrics) {
  std::vector<double> numbers;
  for (const nlohmann::json& line : metrics) {
    numbers.push_back(line.at("loss"));
    if (line.at("kind") == "train") numbers.push_back(line.at("grad_norm"));
  }
  return numbers;
}

void require_close(const std::vector<double>& numbers, const std::vector<double>& expected) {
  REQUIRE(numbers.size() == expected.size());
  for (std::size_t i = 0; i < numbers.size(); ++i) CHECK(numbers[i] == Approx(expected[i]).epsilon(1e-5));
}

}  // namespace

TEST_CASE("documents: whole runs equal one rank's on every schedule and device") {
  DocumentRun run;
  const std::vector<double> expected = numbers_of(run.metrics());
  REQUIRE(expected.size() >= 3 * 2 + 2);
  struct Layout {
    std::int64_t tensor, data, pipeline, chunks, micro_batch;
    const char* schedule;
    const char* device;
  };
  for (const Layout& layout : {Layout{1, 2, 1, 1, 2, "1f1b", "cpu"}, Layout{2, 1, 2, 1, 1, "zero_bubble", "cpu"},
                               Layout{1, 1, 4, 1, 2, "gpipe", "cpu"}, Layout{1, 2, 2, 2, 1, "interleaved", "cpu"},
                               Layout{2, 1, 1, 1, 4, "1f1b", "cuda"}, Layout{1, 1, 4, 1, 2, "1f1b", "cuda"}}) {
    INFO(layout.schedule << " on " << layout.device << ", tensor " << layout.tensor << " data " << layout.data
                         << " pipeline " << layout.pipeline);
    DocumentRun other;
    other.config.parallel.tensor = layout.tensor;
    other.config.parallel.data = layout.data;
    other.config.parallel.pipeline = layout.pipeline;
    other.config.parallel.virtual_stages = layout.chunks;
    other.config.parallel.schedule = layout.schedule;
    other.config.parallel.sequence_parallel = layout.tensor > 1;
    other.config.train.micro_batch_size = layout.micro_batch;
    other.config.run.device = layout.device;
    require_close(numbers_of(other.metrics()), expected);
  }
}

TEST_CASE("each of the three changes what is learned") {
  DocumentRun run;
  const std::vector<double> all = numbers_of(run.metrics());
  for (bool DataConfig::*option :
       {&DataConfig::reset_attention_mask, &DataConfig::reset_position_ids, &DataConfig::eod_mask_loss}) {
    run.config.data.*option = false;
    CHECK(std::abs(numbers_of(run.metrics())[0] - all[0]) > 1e-5 * std::abs(all[0]));
    run.config.data.*option = true;
  }
}

TEST_CASE("what documents and weights take is planned to the byte") {
  DocumentRun run;
  Config config = run.config;
  Datasets datasets(config);
  const DataFacts facts = datasets.facts();
  resolve(config, 1, &facts);
  run_as_threads(1, [&](Communicator& world) {
    const ProcessGrid grid(world, grid_shape(config));
    Backend backend = make_cpu_backend();
    Trainer trainer(config, grid, backend, datasets);
    trainer.train_step();
    MemoryUse used = trainer.used();
    CHECK(used == static_cast<const MemoryUse&>(trainer.replica().plan()));
    Config plain = config;
    plain.data.reset_attention_mask = plain.data.reset_position_ids = plain.data.eod_mask_loss = false;
    const MemoryPlan without = plan_memory(plain, {}, {});
    // Two kinds of numbers for each token, and no position ids that all micro-batches share.
    const auto shared = static_cast<std::size_t>(config.model.sequence_length * config.train.micro_batch_size * 4);
    CHECK(used.batch - without.batch + shared == std::size_t{2 * 8 * 16 * 4});
  });
}

TEST_CASE("documents that nothing ends are refused") {
  DocumentRun run;
  Documents documents;
  for (int i = 0; i < 20; ++i) documents.push_back(std::vector<std::int32_t>(40, 5));
  make_shard(run.folder.file("endless"), documents, 0, 1, small_vocabulary(50));
  run.config.data.train = run.folder.file("endless");
  const auto start = [&] {
    Config config = run.config;
    const Datasets datasets(config);
  };
  require_error(ErrorKind::data, {"endless-00000.h5: its first document", "token 5", "end of document, 49"}, start);
  // As a part of what data.train stands for: the second set of a folder, a set's second shard, a merged set's last
  // part.
  run.config.data.train = run.folder.path();
  require_error(ErrorKind::data, {"endless-00000.h5: its first document", "--no-append-eod"}, start);
  const Documents good(20, {5, 49});
  const std::string mixed = run.folder.file("mixed");
  run.config.data.train = mixed;
  make_shard(mixed, good, 0, 2, small_vocabulary(50));
  make_shard(mixed, documents, 1, 2, small_vocabulary(50));
  require_error(ErrorKind::data, {"mixed-00001.h5: its first document"}, start);
  documents.insert(documents.begin(), good.begin(), good.end());
  run.config.data.train = run.folder.file("joined");
  make_shard(run.folder.file("joined"), documents, 0, 1, small_vocabulary(50));
  require_error(ErrorKind::data, {"joined-00000.h5: its last document"}, start);
  run.config.data.reset_attention_mask = run.config.data.reset_position_ids = run.config.data.eod_mask_loss = false;
  start();
}

TEST_CASE("a batch without any loss is an error, not a division by zero") {
  DocumentRun run;
  Documents documents;
  for (int i = 0; i < 400; ++i) documents.push_back({49});
  make_shard(run.folder.file("ends"), documents, 0, 1, small_vocabulary(50));
  run.config.data.train = run.folder.file("ends");
  run.config.parallel.data = 2;
  run.config.run.directory = run.folder.file("ends_run");
  const LoopResult result = run_loop(run.config);
  REQUIRE(result.told.size() == 2);
  for (const std::string& told : result.told) {
    CHECK(told.find("data: in the 8 samples from sample 0 on no target has a weight, so the loss is undefined") == 0);
  }
}

TEST_CASE("the losses are those that the input file may name", "[losses]") {
  std::vector<std::string> names;
  for (const Loss& loss : losses()) names.emplace_back(loss.name);
  CHECK(names == find_key("loss", "name")->constraint.choices);
}

TEST_CASE("key tokens: a sample's mean counts by its number of given tokens", "[losses]") {
  Config config;
  CHECK(training_weights(config, -1) == nullptr);
  config.loss = {"key_tokens", {4, 7}, 0.5};
  std::vector<float> weights(4);
  // One input, one token that is both, and the last target.
  CHECK(training_weights(config, -1)(std::vector<std::int32_t>{4, 1, 7, 2, 4}, weights) == 1);
  CHECK(weights == std::vector<float>(4, 2.5f / 4));
  CHECK(training_weights(config, -1)(std::vector<std::int32_t>{1, 1, 1, 1, 1}, weights) == 1);
  CHECK(weights == std::vector<float>(4, 1.0f / 4));
  CHECK(evaluation_weights(config, 9) == nullptr);
  // Masked: what follows token 9 does not belong to the mean; a sample without anything else has none.
  config.data.eod_mask_loss = true;
  CHECK(training_weights(config, 9)(std::vector<std::int32_t>{9, 4, 1, 9, 9}, weights) == 1);
  CHECK(weights == std::vector<float>{0, 0.75f, 0.75f, 0});
  CHECK(training_weights(config, 9)(std::vector<std::int32_t>{9, 9, 9, 9, 4}, weights) == 0);
  CHECK(weights == std::vector<float>(4));
  CHECK(evaluation_weights(config, 9)(std::vector<std::int32_t>{9, 4, 1, 9, 9}, weights) == 2);
  CHECK(weights == std::vector<float>{0, 1, 1, 0});
}

TEST_CASE("key tokens: whole runs on two ranks equal one rank's") {
  DocumentRun run;
  const std::vector<nlohmann::json> plain = run.metrics();
  run.config.loss = {"key_tokens", {1, 2, 30}, 0.25};
  const std::vector<nlohmann::json> metrics = run.metrics();
  CHECK(metrics[0].at("losses").at("key_tokens") == metrics[0].at("loss"));
  CHECK(metrics[0].at("loss").get<double>() > 1.01 * plain[0].at("loss").get<double>());
  // The first evaluation, two steps on, is of nearly the same model: a loss of key tokens would be far off.
  const auto evaluation = [](const std::vector<nlohmann::json>& lines) {
    for (const nlohmann::json& line : lines) {
      if (line.at("kind") == "eval") return line.at("loss").get<double>();
    }
    return 0.0;
  };
  CHECK(evaluation(metrics) == Approx(evaluation(plain)).epsilon(2e-3));
  DocumentRun other;
  other.config.loss = run.config.loss;
  other.config.parallel.data = 2;
  other.config.train.micro_batch_size = 2;
  require_close(numbers_of(other.metrics()), numbers_of(metrics));
}

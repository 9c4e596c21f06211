// Runs whose batches or sequences grow: what does not grow with them, and what the plan says.
#include "distributed/comm/thread_communicator.h"
#include "planning/dry_run/dry_run.h"
#include "support/data_support.h"
#include "support/loop_on_threads.h"
#include "support/tiny_training.h"
#include "support/trainer_on_rank.h"
#include "training/step/grid.h"
#include "training/step/trainer.h"

using namespace megatron;
using namespace megatron::test;

namespace {

struct Corpus {
  ShardFolder folder;
  Config config = tiny_config();

  Corpus() {
    Documents documents(40);
    for (int i = 0; i < 40; ++i) {
      for (int j = 0; j < 33; ++j) documents[static_cast<std::size_t>(i)].push_back(TinyBatches::token(i, j, 7, 49));
    }
    make_shard(folder.file("corpus"), documents, 0, 1, small_vocabulary(50));
    config.data.train = folder.file("corpus");
    config.data.split = "50,50";
    config.train.steps = 3;
    config.train.evaluate_steps = 2;
  }
};

// The loss on the validation split before the first step, and the targets of that step.
std::pair<double, std::int64_t> first_evaluation(const Config& config) {
  std::pair<double, std::int64_t> result;
  run_as_threads(1, [&](Communicator& world) {
    TrainerOnRank rank(config, world);
    result.first = rank.trainer.evaluate(*rank.datasets.validation(), 0, [] { return false; }).value().total;
    result.second = rank.trainer.train_step().batch.tokens();
  });
  return result;
}

std::string line_of(const std::string& text, const std::string& beginning) {
  const std::size_t at = text.find("\n" + beginning) + 1;
  return at == 0 ? "" : text.substr(at, text.find('\n', at) - at);
}

}  // namespace

TEST_CASE("evaluation has the whole batch at full length while training has less") {
  Corpus corpus;
  const auto whole = first_evaluation(corpus.config);
  CHECK(whole.second == 8 * 16);
  Config growing = corpus.config;
  growing.train.batch_ramp_up = {2, 2, 50};
  CHECK(first_evaluation(growing) == std::pair(whole.first, std::int64_t{2 * 16}));
  growing = corpus.config;
  growing.train.curriculum = {"fixed_linear", 4, 50, 4, 2, {}, {}};
  CHECK(first_evaluation(growing) == std::pair(whole.first, std::int64_t{8 * 4}));
}

TEST_CASE("the plan draws the schedule of the step's own micro-batches") {
  Corpus corpus;
  Config config = corpus.config;
  config.parallel.pipeline = 2;
  config.train.global_batch_size = 40;
  CHECK(dry_run(config, 2).find("of 123 columns") != std::string::npos);  // 3 (m + p - 1)
  config.train.global_batch_size = 4;
  CHECK(dry_run(config, 2).find(" columns") == std::string::npos);
}

TEST_CASE("growth: the plan gives a growing run's steps and samples and tokens") {
  Corpus corpus;
  Config config = corpus.config;
  config.train.steps = 0;
  config.train.samples = 100;
  std::string text = dry_run(config, 1);
  CHECK(line_of(text, "length") == "length    12 steps = 96 samples = 1536 tokens");
  CHECK(line_of(text, "ramp-up").empty());
  CHECK(line_of(text, "sequence").empty());
  config.parallel.pipeline = 2;
  config.train.batch_ramp_up = {2, 2, 30};
  text = dry_run(config, 2);
  CHECK(line_of(text, "ramp-up") == "ramp-up   from 2 samples by 2 to 8, in 10 steps of 34 samples together");
  CHECK(line_of(text, "length") == "length    18 steps = 98 samples = 1568 tokens");
  // 1F1B on two stages: 1 of m + 1 is idle.
  CHECK(line_of(text, "schedule").starts_with("schedule  1f1b, bubble 11.1 % (in the first step 33.3 %) of the time"));
  config.train.batch_ramp_up = {};
  config.train.curriculum = {"fixed_linear", 4, 10, 4, 2, {}, {}};
  config.train.samples = 0;
  config.train.tokens = 1000;
  text = dry_run(config, 2);
  CHECK(line_of(text, "sequence") == "sequence  fixed_linear: 4 tokens in the first step, 16 from step 10 on");
  CHECK(line_of(text, "length") == "length    12 steps = 96 samples = 960 tokens");
}

TEST_CASE("growth: an epoch has the same samples wherever it is counted") {
  for (const char* order : {"epoch", "megatron"}) {
    CAPTURE(order);
    Corpus corpus;
    Config config = corpus.config;
    config.data.order = order;
    config.train.steps = 0;
    config.train.epochs = 2;
    config.train.global_batch_size = 1;
    config.train.evaluate_every = 0;
    config.train.evaluate_every_epoch = true;
    config.train.evaluate_steps = 1;
    config.run.directory = corpus.folder.file(order);
    const LoopResult result = run_loop(config);
    REQUIRE(result.told[0].empty());
    double epoch = 0;
    int evaluations = 0;
    for (const nlohmann::json& line : result.metrics) {
      if (line.at("kind") == "train") epoch = line.at("epoch");
      if (line.at("kind") == "eval" && line.at("split") == "validation") CHECK(epoch == ++evaluations);
    }
    CHECK(evaluations == 2);
    CHECK(epoch == 2);
  }
}

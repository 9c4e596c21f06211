// Evaluations whose samples do not fill a batch: each of them counts once, on every layout.
#include "distributed/comm/thread_communicator.h"
#include "support/catch.h"
#include "support/data_support.h"
#include "support/tiny_training.h"
#include "support/trainer_on_rank.h"
#include "training/step/grid.h"
#include "training/step/trainer.h"

using namespace megatron;
using namespace megatron::test;

namespace {

constexpr std::int32_t kEnd = 49;

/// Validation data of `samples` samples for the tiny model.
struct Evaluation {
  ShardFolder folder;
  Config config = tiny_config();

  explicit Evaluation(std::int64_t samples) {
    make_shard(folder.file("training"), {words(200, 3)}, 0, 1, small_vocabulary(50));
    // Documents end at other places in each sample, so that their counts of targets differ.
    const std::int64_t tokens = samples * config.model.sequence_length + 1;
    make_shard(folder.file("validation"), {words(5, 5), words(tokens / 2, 7), words(tokens - 5 - tokens / 2, 11)}, 0, 1,
               small_vocabulary(50));
    config.data.train = folder.file("training");
    config.data.validation = folder.file("validation");
    config.data.split = "1";
    config.train.steps = 1;
    config.train.evaluate_steps = 4;
  }
  static std::vector<std::int32_t> words(std::int64_t count, int kind) {
    std::vector<std::int32_t> document;
    for (int i = 1; i < count; ++i) document.push_back(TinyBatches::token(i, kind, kind, kEnd));
    document.push_back(kEnd);
    return document;
  }
  /// The first evaluation, on a layout of `ranks`.
  double loss(std::int64_t batch, const ParallelConfig& parallel = {}, std::int64_t micro_batch = 1) const {
    Config own = config;
    own.train.global_batch_size = batch;
    own.train.micro_batch_size = micro_batch;
    own.parallel = parallel;
    const int ranks = static_cast<int>(parallel.tensor * parallel.pipeline * std::max<std::int64_t>(parallel.data, 1));
    double loss = 0;
    run_as_threads(ranks, [&](Communicator& world) {
      TrainerOnRank rank(own, world);
      const double here = rank.trainer.evaluate(*rank.datasets.validation(), 0, [] { return false; }).value().total;
      if (world.rank() == 0) loss = here;
    });
    return loss;
  }
};

ParallelConfig layout(std::int64_t tensor, std::int64_t data, std::int64_t pipeline) {
  ParallelConfig parallel;
  parallel.tensor = tensor;
  parallel.data = data;
  parallel.pipeline = pipeline;
  return parallel;
}

}  // namespace

TEST_CASE("small evaluation: fewer samples than a batch give the mean over them") {
  Evaluation three(3);
  three.config.data.eod_mask_loss = GENERATE(false, true);
  const double mean = three.loss(1);  // one sample a batch: nothing to fill
  CHECK(three.loss(3) == Approx(mean).epsilon(1e-7));
  CHECK(three.loss(8) == Approx(mean).epsilon(1e-7));
  CHECK(three.loss(8, {}, 4) == Approx(mean).epsilon(1e-7));
  CHECK(three.loss(8, layout(1, 4, 1), 2) == Approx(mean).epsilon(1e-6));  // the last two have padding alone
  CHECK(three.loss(8, layout(2, 2, 1)) == Approx(mean).epsilon(1e-6));
  CHECK(three.loss(8, layout(1, 1, 4), 2) == Approx(mean).epsilon(1e-6));  // stages in the middle as well
}

TEST_CASE("small evaluation: the last batch may be smaller and a limit is kept") {
  Evaluation seven(7);
  const double mean = seven.loss(7);
  CHECK(seven.loss(2) == Approx(mean).epsilon(1e-7));
  CHECK(seven.loss(4, layout(2, 2, 1)) == Approx(mean).epsilon(1e-6));
  seven.config.train.evaluate_steps = 1;
  const double first = seven.loss(4);
  CHECK(std::abs(first - mean) > 1e-4);
}

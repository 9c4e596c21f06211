// Sizes of checkpoints in a plan, against the files of real saves.
#include "checkpoint/store/folder.h"
#include "checkpoint/store/rank_file.h"
#include "planning/dry_run/checkpoint_size.h"
#include "planning/dry_run/plan_text.h"
#include "support/catch.h"
#include "support/loop_on_threads.h"
#include "training/datasets/datasets.h"
#include "training/step/compute.h"
#include "training/step/grid.h"
#include "training/step/saved_layout.h"

using namespace megatron;
using namespace megatron::test;

namespace {

struct Row {
  const char* name;
  int tensor, pipeline, data;
  void (*change)(Config&);
};

const Row kSizeRows[] = {
    {"one rank", 1, 1, 1, [](Config&) {}},
    {"bf16 on the cube", 2, 2, 2, [](Config& config) { config.precision.compute = "bf16"; }},
    {"a distributed optimizer", 1, 1, 4, [](Config& config) { config.optimizer.share = "state"; }},
    {"distributed on tensor ranks", 2, 1, 2,
     [](Config& config) {
       config.optimizer.share = "state";
       config.precision.compute = "fp16";
     }},
    {"SGD without momentum", 1, 2, 1,
     [](Config& config) {
       config.optimizer.name = "sgd";
       config.optimizer.momentum = 0;
     }},
    {"SGD with momentum", 2, 1, 1, [](Config& config) { config.optimizer.name = "sgd"; }},
    {"Lion", 1, 1, 2, [](Config& config) { config.optimizer.name = "lion"; }},
    {"moments in bf16", 1, 1, 2, [](Config& config) { config.optimizer.moments_dtype = "bf16"; }},
    {"Muon", 2, 1, 1, [](Config& config) { config.optimizer.name = "muon"; }},
    {"SGD without momentum, but for matrices", 1, 1, 2,
     [](Config& config) {
       config.optimizer.name = "sgd";
       config.optimizer.momentum = 0;
       ParameterGroupConfig& group = config.optimizer_groups.emplace_back();
       group.roles = {"matrix"};
       group.keys = {"name"};
       group.values.name = "adamw";
     }},
    {"experts over two ranks", 1, 1, 2,
     [](Config& config) {
       with_balanced_experts(config.model);
       config.parallel.expert = 2;
     }},
    {"a model without biases", 1, 4, 1, [](Config& config) { like_llama(config.model); }},
};

std::int64_t bytes_of_newest(const std::string& run) {
  const std::string folder = checkpoints_folder(run);
  std::int64_t bytes = 0;
  for (const auto& entry :
       std::filesystem::directory_iterator(folder + "/" + step_folder_name(steps_in(folder).front()))) {
    bytes += static_cast<std::int64_t>(entry.file_size());
  }
  return bytes;
}

}  // namespace

TEST_CASE("plan: the size of a checkpoint is that of a real save to 3 %") {
  for (const Row& row : kSizeRows) {
    CAPTURE(row.name);
    const ShardFolder folder;
    Config config = tiny_config();
    config.data.train = make_corpus(folder);
    config.train.steps = 1;
    config.parallel.tensor = row.tensor;
    config.parallel.pipeline = row.pipeline;
    config.parallel.data = row.data;
    config.run.directory = folder.file("run");
    row.change(config);
    for (const std::string& told : run_loop(config).told) REQUIRE(told.empty());

    const DataFacts facts = Datasets(config).facts();
    config.run = choose_planned_device(config.run);
    resolve(config, row.tensor * row.pipeline * row.data, &facts);
    const auto saved = static_cast<double>(bytes_of_newest(config.run.directory));
    CHECK(static_cast<double>(planned_checkpoint_bytes(config, plan_stages(config, grid_shape(config)))) ==
          Approx(saved).epsilon(0.03));
  }
}

TEST_CASE("plan: many ranks' checkpoint is estimated from the tables of some") {
  Config config = tiny_config();
  config.data.train = "corpus";
  config.parallel.data = 0;
  config.parallel.tensor = config.parallel.pipeline = 2;
  config.train.global_batch_size = 256;
  config.train.steps = 1;
  resolve(config, 128, nullptr);
  std::int64_t files = 0;
  for (int rank = 0; rank < 128; ++rank) {
    std::vector<TensorSlice> slices = saved_layout(config, rank);
    std::erase_if(slices, [](const TensorSlice& slice) { return slice.count == 0; });
    files += rank_file_bytes(slices);
  }
  const auto planned = static_cast<double>(planned_checkpoint_bytes(config, plan_stages(config, grid_shape(config))));
  CHECK(planned > static_cast<double>(files));  // the manifest
  CHECK(planned == Approx(static_cast<double>(files)).epsilon(0.05));
}

TEST_CASE("plan: checkpoints at a time, by steps, by time and with the best") {
  Config config;
  config.train.steps = 100;
  config.checkpoint.every_minutes = 0;
  const auto most = [&](std::optional<double> seconds = {}) { return checkpoints_at_a_time(config, seconds); };
  CHECK(most() == 1);
  config.checkpoint.every_steps = 50;
  CHECK(most() == 2);
  config.checkpoint.every_steps = 10;
  CHECK(most() == 3);  // two stay, and the next is complete before the oldest goes
  config.checkpoint.keep_last = 0;
  CHECK(most() == 10);
  config.checkpoint.every_minutes = 1;
  CHECK(most(130) == 12);
  CHECK_FALSE(most());  // how long it takes decides, and is not known
  config.checkpoint.keep_last = 2;
  CHECK(most() == 3);
  config.checkpoint.every_steps = 0;
  CHECK(most(30) == 1);
  CHECK(most(70) == 2);
  config.checkpoint.keep_best = true;
  CHECK(most() == 4);
  config.checkpoint.never = true;
  CHECK(most() == 0);
}

TEST_CASE("plan: a save takes the bytes' time and that of its syncs") {
  CHECK(save_seconds(1 << 30, {.seconds_per_sync = 0, .bytes_per_second = 1 << 29}) == Approx(2));
  CHECK(save_seconds(0, {.seconds_per_sync = 0.01, .bytes_per_second = 1}) > 0.01);
}

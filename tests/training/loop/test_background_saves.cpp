// Whole runs that save in the background: the same checkpoints and numbers as those that wait, saves that come too
// soon, and the memory that it takes.
#include "backend/ops/backends.h"
#include "distributed/comm/thread_communicator.h"
#include "support/catch.h"
#include "support/loop_on_threads.h"
#include "support/parts_of_text.h"
#include "training/loop/run_saves.h"
#include "training/step/compute.h"
#include "training/step/grid.h"
#include "training/step/trainer.h"

using namespace megatron;
using namespace megatron::test;

namespace {

struct SavingRun {
  ShardFolder folder;
  Config config = tiny_config();
  int runs = 0;

  SavingRun() {
    config.data.train = make_corpus(folder);
    config.data.split = "80,20";
    config.train.steps = 7;
    config.train.evaluate_every = 3;
    config.train.evaluate_steps = 1;
    config.checkpoint.every_steps = 1;
    config.checkpoint.keep_last = 0;
  }
  LoopResult run(bool async) {
    config.checkpoint.async = async;
    config.run.directory = folder.file("run" + std::to_string(++runs));
    LoopResult result = run_loop(config);
    for (const std::string& told : result.told) REQUIRE(told.empty());
    for (nlohmann::json& line : result.metrics) {
      for (const char* timing :
           {"time", "step_seconds", "tokens_per_second", "model_tflops_per_rank", "hardware_tflops_per_rank"}) {
        line.erase(timing);
      }
    }
    return result;
  }
  std::map<std::string, std::string> rank_files() const {
    std::map<std::string, std::string> files;
    for (const auto& entry : std::filesystem::recursive_directory_iterator(config.run.directory + "/checkpoints")) {
      if (entry.path().extension() != ".h5") continue;
      files[entry.path().lexically_relative(config.run.directory).string()] = contents_of(entry.path().string());
    }
    return files;
  }
};

/// A rank's objects while it trains `config` (not resolved).
struct Rank {
  const Config& config;
  const ProcessGrid& grid;
  Backend& backend;
  Trainer& trainer;
};

void on_ranks(int ranks, const Config& wanted, const std::function<void(const Rank&)>& body) {
  run_as_threads(ranks, [&](Communicator& world) {
    Config config = wanted;
    Datasets datasets(config);
    const DataFacts facts = datasets.facts();
    resolve(config, world.size(), &facts);
    Backend backend = config.run.device == "cuda" ? make_separate_backend() : make_cpu_backend();
    const std::unique_ptr<Communicator> transport = staged_transport(world, *backend.device);
    const ProcessGrid grid(world, grid_shape(config), transport.get());
    Trainer trainer(config, grid, backend, datasets);
    body({config, grid, backend, trainer});
  });
}

}  // namespace

TEST_CASE("background saves: checkpoints and numbers equal those of a waiting run", "[fault-26]") {
  struct Layout {
    std::int64_t tensor, data, pipeline;
    bool distributed;
    const char *device, *compute;
  };
  const Layout layout = GENERATE(Layout{1, 1, 1, false, "cpu", "fp32"}, Layout{2, 2, 1, true, "cpu", "bf16"},
                                 Layout{1, 2, 2, false, "cuda", "fp32"});
  SavingRun run;
  run.config.parallel.tensor = layout.tensor;
  run.config.parallel.data = layout.data;
  run.config.parallel.pipeline = layout.pipeline;
  run.config.optimizer.share = layout.distributed ? "state" : "none";
  run.config.run.device = layout.device;
  run.config.precision.compute = layout.compute;
  const LoopResult waiting = run.run(false);
  const auto expected = run.rank_files();
  const LoopResult result = run.run(true);
  CHECK(expected.size() == 7 * static_cast<std::size_t>(layout.tensor * layout.data * layout.pipeline));
  CHECK(run.rank_files() == expected);
  CHECK(result.metrics == waiting.metrics);
  CHECK(times_in(result.log, "in the background, for which training waited") == 6);
  CHECK(times_in(waiting.log, "in the background, for which") == 0);
  CHECK(times_in(result.log, "saved ") == 7);  // the last one at once
}

TEST_CASE("a save that comes while one is being written waits for it and says so", "[fault-26]") {
  SavingRun run;
  const LoopResult result = run.run(true);  // every step: a save takes two steps at least, to be written and committed
  CHECK(times_in(result.log, "which was still being written") >= 5);
}

TEST_CASE("an update waits for the copy of a save, which tells of that", "[fault-26]") {
  SavingRun run;
  run.config.run.device = "cuda";
  run.config.run.directory = run.folder.file("run");
  run.config.checkpoint.async = true;
  std::filesystem::create_directories(run.config.run.directory);
  on_ranks(1, run.config, [&](const Rank& rank) {
    const std::string& directory = rank.config.run.directory;
    Log log(true);
    log.append_to(directory + "/run.log");
    RunLimits limits({}, directory);
    const PlotData data;
    LossPlot plot(directory, directory, data, log);
    SavedStep saved(true);
    RunSaves saves(rank.config, rank.grid.world(), rank.trainer, limits, plot, saved, log);
    rank.trainer.train_step();
    rank.trainer.save(run.folder.file("expected"), nlohmann::json::object());
    saves.save({.step = 1}, nlohmann::json::object(), true, {}, {});
    CHECK(rank.trainer.background_save()->copying());
    auto& device = dynamic_cast<SeparateDevice&>(*rank.backend.device);
    device.set_wait_seconds(0.3);
    rank.trainer.train_step();
    device.set_wait_seconds(0);
    CHECK_FALSE(rank.trainer.background_save()->copying());
    saves.wait();
  });
  const std::string log = contents_of(run.config.run.directory + "/run.log"), before = "for which training waited ";
  INFO(log);
  const std::size_t at = log.find(before);
  REQUIRE(at != std::string::npos);
  CHECK(std::stod(log.substr(at + before.size())) >= 0.3);
  const std::string file = "/checkpoints/step_00000001/rank_00000.h5";
  CHECK(contents_of(run.config.run.directory + file) == contents_of(run.folder.file("expected") + file));
}

TEST_CASE("a save in the background is committed in the middle of an evaluation", "[fault-26]") {
  const std::string device = GENERATE("cpu", "cuda");
  // A disk may be slower than a whole evaluation, even one of some tenths of a second: once in several runs is enough.
  bool in_the_middle = false;
  for (int attempt = 0; attempt < 10 && !in_the_middle; ++attempt) {
    SavingRun run;
    run.config.run.device = device;
    run.config.checkpoint.every_steps = 5;
    run.config.train.evaluate_every = 6;
    run.config.data.split = "1";
    run.config.data.validation = make_corpus(run.folder, 60);
    run.config.train.evaluate_steps = 600;
    const std::string log = run.run(true).log;
    INFO(log);
    REQUIRE(log.find("after step 6") != std::string::npos);
    REQUIRE(log.find("step_00000005 (") != std::string::npos);
    in_the_middle = log.find("step_00000005 (") < log.find("after step 6");
  }
  CHECK(in_the_middle);
}

TEST_CASE("background saves: copied memory is planned to the byte on every rank") {
  SavingRun run;
  run.config.checkpoint.async = true;
  const bool distributed = GENERATE(false, true);
  const std::string rule = GENERATE("adamw", "sgd", "muon");
  const char* device = GENERATE("cpu", "cuda");
  run.config.parallel.data = 3;
  run.config.train.global_batch_size = 12;
  run.config.parallel.pipeline = 2;
  run.config.optimizer.share = distributed ? "state" : "none";
  run.config.optimizer.name = rule;
  run.config.run.device = device;
  on_ranks(6, run.config, [](const Rank& rank) {
    const ProcessGrid& grid = rank.grid;
    const bool separate = rank.config.run.device == "cuda";
    Config config = rank.config;
    const MemoryPlan plan = plan_memory(config, grid_shape(config), grid.at());
    config.checkpoint.async = false;
    const MemoryPlan without = plan_memory(config, grid_shape(config), grid.at());
    const std::size_t bytes = rank.trainer.background_save()->bytes();
    const MemoryUse used = rank.trainer.used();
    const std::size_t planned = separate ? plan.host - without.host : plan.snapshot;
    internal_check(bytes > 0 && planned == bytes, "another number of bytes is planned");
    internal_check(plan.total() - without.total() == (separate ? 0 : bytes), "it is not in the total, or twice");
    const MemoryUse &fullest = plan.fullest, &fullest_without = without.fullest;
    constexpr Partial kBytesSaved{"bytes that a copy saves", Group::copies, Reduce::maximum};
    const auto most = static_cast<std::size_t>(grid.copies().all_reduce_value(static_cast<double>(bytes), kBytesSaved));
    internal_check(
        !config.optimizer.shares().state || (separate ? fullest.host - fullest_without.host : fullest.snapshot) == most,
        "the fullest copy is planned with another number of bytes");
    internal_check(separate ? used.host >= bytes && used.snapshot == 0 : used.snapshot == bytes, "it is not held");
  });
}

TEST_CASE("a run without saves between keeps no memory for them") {
  SavingRun run;
  run.config.checkpoint.async = true;
  run.config.checkpoint.every_steps = 0;
  run.config.checkpoint.every_minutes = 0;
  run.config.model.query_groups = 4;
  CHECK(plan_memory(run.config, {}, {}).snapshot == 0);
  CHECK_FALSE(saves_in_background(run.config));
}

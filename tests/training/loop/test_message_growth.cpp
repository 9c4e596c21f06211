// How the messages of a rank grow with its job, from the first decision to the last checkpoint: the law is in
// docs/communication.md. Start-up, steps and saves are the program's own, on communicators that count and answer as if
// every rank gave what this one gives, and on a device that computes nothing.
//
// Not played: the choice of GPUs and NCCL, the mark in a shared directory, the reading of checkpoints, background
// saves, evaluations, and errors.
#include <algorithm>
#include <cmath>
#include <filesystem>

#include "backend/ops/backends.h"
#include "backend/ops/counting_device.h"
#include "backend/ops/counting_ops.h"
#include "checkpoint/store/folder.h"
#include "distributed/comm/counting_communicator.h"
#include "distributed/comm/staging.h"
#include "distributed/process/node_memory.h"
#include "support/catch.h"
#include "support/small_corpus.h"
#include "training/loop/run_start.h"
#include "training/loop/training_loop.h"
#include "training/step/grid.h"

using namespace megatron;
using namespace megatron::test;

namespace {

constexpr int kJobs[] = {8, 64, 512, 4096};

// In small groups every rank sends to all others; in larger ones up a tree and down again.
std::int64_t most_of_a_decision(int ranks) {
  return std::max(kDirectRanks - 1, static_cast<int>(std::log2(ranks)) + 1);
}

std::vector<int> some_ranks(int ranks) {
  return {0, 1, ranks / 2 - 1, ranks / 2, ranks - 1};
}

/// One rank of a job, alone in its process.
struct CountedRank {
  CountingCommunicator world, tensors;
  TrafficMeter meter;
  std::vector<std::string> warnings;
  ResolvedRun run;
  std::int64_t start_operations, start_messages;
  ProcessGrid grid;
  Backend backend{std::make_unique<CountingDevice>(false), std::make_unique<CountingOps>()};

  CountedRank(const Config& config, int rank, int ranks)
      : world(rank, ranks), tensors(rank, ranks), run(start(config)), grid(world, grid_shape(run.config), &tensors) {}

  ResolvedRun start(const Config& config) {
    world.set_meter(&meter);
    ResolvedRun resolved = agree_on_run(config, world, warnings);
    require_memory(world, "node", *backend_of_the_host().device, {.device = 1}, "");
    start_operations = meter.operations;
    start_messages = meter.messages;
    return resolved;
  }
  static const Backend& backend_of_the_host() {
    static const Backend backend = make_cpu_backend();
    return backend;
  }
};

/// Tensor and pipeline ranks up to 8 each, the rest data ranks.
Config with_all_axes(const ShardFolder& folder, int ranks) {
  const int side = std::min(8, static_cast<int>(std::cbrt(ranks) + 0.5));
  Config config = small_run(folder, side, side);
  config.run.device = "cpu";
  config.model.layers = config.model.attention_heads = config.model.query_groups = 8;
  config.model.hidden_size = 64;
  config.train.global_batch_size = 8 * ranks / (side * side);
  config.train.steps = 2;
  config.parallel.sequence_parallel = true;
  config.optimizer.share = "state";
  return config;
}

/// Data ranks alone, each of which saves as much of every tensor as any other.
Config with_data_ranks(const ShardFolder& folder, int ranks) {
  Config config = small_run(folder, 1, 1);
  config.run.device = "cpu";
  config.run.directory = folder.file("run");
  config.model.layers = 1;
  config.model.hidden_size = std::max(64, ranks);
  config.model.sequence_length = config.model.max_position_embeddings = 8;
  config.train.global_batch_size = ranks;
  config.train.steps = 2;
  config.checkpoint.every_steps = 1;
  config.data.split = "1";  // no evaluations
  return config;
}

}  // namespace

TEST_CASE("message growth: start-up takes the same decisions in jobs of any size") {
  std::int64_t operations = 0;
  for (const int ranks : kJobs) {
    for (const int rank : some_ranks(ranks)) {
      CAPTURE(ranks, rank);
      const ShardFolder folder;
      const CountedRank counted(with_all_axes(folder, ranks), rank, ranks);
      CHECK(counted.start_messages <= counted.start_operations * most_of_a_decision(ranks));
      CHECK(counted.start_messages > 0);
      if (rank != ranks - 1) continue;  // a leaf of every tree: it receives from no rank below it
      if (operations == 0) operations = counted.start_operations;
      CHECK(counted.start_operations == operations);
    }
  }
}

TEST_CASE("message growth: a step itself asks nothing of the world") {
  for (const int ranks : kJobs) {
    for (const int rank : some_ranks(ranks)) {
      CAPTURE(ranks, rank);
      const ShardFolder folder;
      CountedRank counted(with_all_axes(folder, ranks), rank, ranks);
      const ProcessGrid& grid = counted.grid;
      Trainer trainer(counted.run.config, grid, counted.backend, *counted.run.datasets);
      std::vector<TrafficMeter> meters(grid.groups().size());
      for (std::size_t i = 0; i < meters.size(); ++i) grid.groups()[i]->set_meter(&meters[i]);
      counted.meter = {};
      trainer.train_step();
      CHECK(counted.meter.messages == 0);
      std::int64_t in_all = 0;
      for (std::size_t i = 0; i < meters.size(); ++i) {
        const Communicator& group = *grid.groups()[i];
        CAPTURE(group.name(), group.size(), meters[i].operations);
        // No tensor of this model is longer than a chunk: at most two messages for each other rank of the group.
        CHECK(meters[i].messages <= meters[i].operations * 2 * (group.size() - 1));
        in_all += meters[i].messages;
      }
      CHECK(in_all > 0);
      // The one sum over a whole model replica is of a few numbers.
      const auto model = static_cast<std::size_t>(std::find(grid.groups().begin(), grid.groups().end(), &grid.model()) -
                                                  grid.groups().begin());
      CHECK(meters[model].operations == 1);
      CHECK(meters[model].messages <= most_of_a_decision(grid.model().size()));
    }
  }
}

TEST_CASE("message growth: saves and the end decide the same in jobs of any size") {
  std::int64_t operations = 0;
  for (const int ranks : kJobs) {
    for (const int rank : some_ranks(ranks)) {
      CAPTURE(ranks, rank);
      const ShardFolder folder;
      CountedRank counted(with_data_ranks(folder, ranks), rank, ranks);
      const Config& config = counted.run.config;
      const std::string folder_of_saves = checkpoints_folder(config.run.directory);
      std::filesystem::create_directories(folder_of_saves);
      for (int step = 1; rank != 0 && step <= 2; ++step) {  // rank 0 would have made these
        std::filesystem::create_directories(folder_of_saves + "/" + temporary_folder_name(step));
      }
      StopSignals signals;
      Log log(false);
      counted.meter = {};
      TrainingLoop loop(config, counted.grid, counted.backend, *counted.run.datasets, counted.run.tasks, log, signals,
                        {});
      std::vector<std::string> warnings;
      loop.load(rank == 0 ? open_newest_checkpoint(counted.world, config.run.directory, warnings) : std::nullopt);
      CHECK(loop.run() == 0);
      CHECK(loop.step() == 2);
      CHECK(counted.meter.messages <= counted.meter.operations * most_of_a_decision(ranks));
      CHECK(counted.meter.messages > 0);
      if (rank == 0) CHECK(std::filesystem::exists(folder_of_saves + "/" + step_folder_name(2) + "/manifest.json"));
      if (rank != ranks - 1) continue;
      if (operations == 0) operations = counted.meter.operations;
      CHECK(counted.meter.operations == operations);
    }
  }
}

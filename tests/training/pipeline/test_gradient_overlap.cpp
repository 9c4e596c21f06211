// The gradient sums in flight when the last backward of a step is over: played on paper, by any layout.
#include "backend/ops/counting_ops.h"
#include "distributed/comm/counting_communicator.h"
#include "models/families/family.h"
#include "support/catch.h"
#include "support/model_sizes.h"
#include "training/pipeline/executor.h"

using namespace megatron;
using namespace megatron::test;

namespace {

struct Started {
  std::int64_t under_backward = 0, all = 0;
};

// Plays one step of a stage of a four-layer model whose layers are about a bucket each.
Started play(int stages, int stage, bool overlap, const std::string& schedule = "1f1b") {
  ModelConfig model = model_of({.layers = 4, .hidden = 640, .heads = 4, .ffn = 2560, .sequence = 8});
  ParallelConfig parallel;
  parallel.pipeline = stages;
  const int chunks = schedule == "interleaved" ? 2 : 1;
  parallel.virtual_stages = chunks;
  Config config;
  config.model = model;
  config.parallel = parallel;
  const GridShape shape{.data = 2, .pipeline = stages, .ties = family_of(model).ties(config)};
  CountingCommunicator world(rank_of({.pipeline = stage}, shape), shape.ranks());
  const ProcessGrid grid(world, shape);
  TrafficMeter sums;
  grid.data().set_meter(&sums);
  const TensorRegion region(grid, false);
  ParameterStore store;
  const auto stages_here = make_stages(config, grid, region, store);
  PipelineExecutor::Chunks pointers;
  for (const auto& chunk : stages_here) pointers.push_back(chunk.get());
  store.allocate_sizing(DType::f32);
  GradientReducer gradient_reducer(grid, store);

  Arena scratch("scratch"), batch("batch");
  MicroBatch micro_batch;
  for (ConstTensor* ids : {&micro_batch.main.tokens, &micro_batch.main.targets, &micro_batch.main.position_ids}) {
    *ids = batch.allocate("ids", {8, 1}, DType::i32);
  }
  micro_batch.main.positions = batch.allocate("positions", {8}, DType::i32);
  micro_batch.main.sequence = 8;
  micro_batch.samples = 1;
  const std::vector<MicroBatch> micro_batches(3, micro_batch);
  const std::vector<Action> actions = make_schedule(schedule, stage, stages, 3, chunks);
  PipelineExecutor executor(pointers, grid, region, {&actions});
  CountingOps ops;
  Timers timers;
  const double gradient_scale = 1;
  executor.run(actions, micro_batches,
               {.gradient_reducer = overlap ? &gradient_reducer : nullptr,
                .loss_sums = batch.allocate("loss", {1}, DType::f64),
                .gradient_scales = {&gradient_scale, 1}},
               ops, scratch, timers);
  Started started{.under_backward = sums.operations};
  gradient_reducer.finish(ops, scratch);
  started.all = sums.operations;
  return started;
}

}  // namespace

TEST_CASE("gradient overlap: a layer's sums start when the backward has passed it") {
  const Started one_stage = play(1, 0, true), first = play(2, 0, true), last = play(2, 1, true);
  CHECK(one_stage.under_backward == 4);  // all but the first, which holds the tied table
  CHECK(one_stage.all == 5);
  CHECK(first.under_backward == 2);
  CHECK(first.all == 3);
  CHECK(last.under_backward == 2);
  CHECK(last.all == 3);
}

TEST_CASE("gradient overlap: each chunk's last backward starts its own sums") {
  for (const std::string schedule : {"interleaved", "zero_bubble"}) {
    for (const int stage : {0, 1}) {
      CAPTURE(schedule, stage);
      const Started started = play(2, stage, true, schedule);
      // On an interleaved last stage even the first bucket is in flight: the tied table lies after chunk 0.
      CHECK(started.under_backward == (schedule == "interleaved" && stage == 1 ? 3 : 2));
      CHECK(started.all == 3);
    }
  }
}

TEST_CASE("without overlap nothing is on its way before the last backward is over") {
  const Started started = play(2, 1, false);
  CHECK(started.under_backward == 0);
  CHECK(started.all == 3);
}

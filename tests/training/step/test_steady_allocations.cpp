// Once the first steps are done, a step allocates nothing.
#include "backend/cpu/cpu_ops.h"
#include "backend/ops/backends.h"
#include "backend/ops/traced_ops.h"
#include "distributed/comm/thread_communicator.h"
#include "support/catch.h"
#include "support/counted_allocations.h"
#include "training/step/memory_layout.h"
#include "training/step/replica.h"

using namespace megatron;
using namespace megatron::test;

TEST_CASE("a steady step allocates nothing") {
  for (const Layout& layout : {Layout{},
                               Layout{.micro_batch = 4},
                               Layout{.optimizer = "muon"},
                               Layout{.micro_batch = 2, .schedule = "gpipe"},
                               Layout{.schedule = "zero_bubble"},
                               Layout{.schedule = "zero_bubble", .dropout = 0},
                               Layout{.dropout = 0},
                               Layout{.micro_batch = 2, .recompute = {"full", 3}},
                               Layout{.recompute = {"selective"}},
                               Layout{.schedule = "gpipe", .ramp_up = {2, 2, 8}},  // batches of 2 2 4 8 8
                               Layout{.curriculum = {"fixed_discrete", 0, 0, 1, 1, {3, 9, 16}, {2, 3}}},
                               Layout{.micro_batch = 2, .variant = like_llama},
                               Layout{.schedule = "zero_bubble", .variant = with_one_group},
                               Layout{.recompute = {"full", 3}, .variant = with_normed_heads},
                               Layout{.variant = like_bert},
                               Layout{.schedule = "zero_bubble", .dropout = 0, .variant = like_megatron_bert},
                               Layout{.variant = with_head_chunks},
                               Layout{.schedule = "zero_bubble", .variant = bert_with_head_chunks},
                               Layout{.micro_batch = 2, .variant = without_drops},
                               Layout{.recompute = {"full", 3}, .variant = without_drops}}) {
    CAPTURE(layout.micro_batch, layout.schedule, layout.dropout, layout.ramp_up.start);
    const Config config = config_of(layout);
    std::vector<long> by_step;
    run_as_threads(1, [&](Communicator& world) {
      const ProcessGrid grid(world, {});
      Backend backend = make_cpu_backend();
      Replica replica(config, grid, backend);
      TinyBatches batches(config, 0);
      Timers timers;
      by_step.reserve(5);
      for (int step = 1; step <= 5; ++step) {
        const std::span<const MicroBatch> micro_batches = batches.step(step);
        const long before = allocations_of_mine();
        const StepSums sums = replica.forward_backward(micro_batches, step, batches.loss(), timers);
        replica.update(sums, {.learning_rate = 1e-3, .weight_decay = config.optimizer.weight_decay}, timers);
        by_step.push_back(allocations_of_mine() - before);
      }
    });
    CHECK(by_step[2] == 0);
    CHECK(by_step[3] == 0);
    CHECK(by_step[4] == 0);
  }
  // And the counter counts.
  const long before = allocations_of_mine();
  const Backend backend = make_cpu_backend();
  const long after = allocations_of_mine();
  CHECK(after > before);
}

TEST_CASE("a steady step that is traced allocates nothing") {
  const Config config = config_of(Layout{.micro_batch = 2});
  std::vector<long> by_step;
  std::size_t events = 0;
  run_as_threads(1, [&](Communicator& world) {
    const ProcessGrid grid(world, {});
    Backend backend = make_cpu_backend();
    const auto recorder = std::make_shared<TraceRecorder>(100'000);
    backend.ops = with_trace(std::move(backend.ops), recorder);
    Replica replica(config, grid, backend);
    TinyBatches batches(config, 0);
    Timers timers;
    timers.set_ranges(backend.ops->ranges());
    recorder->start();
    by_step.reserve(4);
    for (int step = 1; step <= 4; ++step) {
      const std::span<const MicroBatch> micro_batches = batches.step(step);
      const long before = allocations_of_mine();
      const StepSums sums = replica.forward_backward(micro_batches, step, batches.loss(), timers);
      replica.update(sums, {.learning_rate = 1e-3, .weight_decay = config.optimizer.weight_decay}, timers);
      by_step.push_back(allocations_of_mine() - before);
    }
    events = recorder->events().size();
  });
  CHECK(by_step[2] == 0);
  CHECK(by_step[3] == 0);
  CHECK(events > 1000);
}

// Sums of a step on their way from its passes to its update: the update has them from its caller alone.
#include "backend/ops/backends.h"
#include "distributed/comm/thread_communicator.h"
#include "support/catch.h"
#include "support/tiny_training.h"
#include "training/step/grid.h"

using namespace megatron;
using namespace megatron::test;

TEST_CASE("step sums: an update's scale and counts are those it is given") {
  Config config = tiny_config();
  config.model.hidden_dropout = config.model.attention_dropout = 0;
  run_as_threads(1, [&](Communicator& world) {
    const ProcessGrid grid(world, grid_shape(config));
    Backend backend = make_cpu_backend();
    Replica replica(config, grid, backend);
    TinyBatches batches(config, 0);
    Timers timers;
    const std::span<const MicroBatch> micro_batches = batches.step(1);
    const double twice = 2 * batches.targets();
    StepSums sums = replica.forward_backward(micro_batches, 1, batches.loss(), timers);
    CHECK(sums.loss_scale == 1);
    CHECK(sums.loss_counts.size() == 1);
    CHECK(sums.loss_counts[0] == batches.targets());
    CHECK(sums.losses.elements() == 1);
    CHECK(sums.routes.counts.empty());  // no experts
    const Replica::Update given = replica.update(sums, {}, timers);
    const double loss = given.loss.total;
    sums.loss_scale = 4;
    sums.loss_counts = {&twice, 1};
    // The caller's gradient_scale is not that of the gradients.
    const Replica::Update changed = replica.update(sums, {.gradient_scale = 64}, timers);
    CHECK(changed.gradient_norm == given.gradient_norm / 4);
    CHECK(changed.loss.total == loss / 2);
  });
}

TEST_CASE("step sums: the counts of another number of terms are refused") {
  const Config config = tiny_config();
  run_as_threads(1, [&](Communicator& world) {
    const ProcessGrid grid(world, grid_shape(config));
    Backend backend = make_cpu_backend();
    Replica replica(config, grid, backend);
    TinyBatches batches(config, 0);
    Timers timers;
    StepSums sums = replica.forward_backward(batches.step(1), 1, batches.loss(), timers);
    sums.loss_counts = {};
    CHECK_THROWS_AS(replica.update(sums, {}, timers), Error);
  });
}

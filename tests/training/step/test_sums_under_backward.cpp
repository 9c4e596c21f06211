// When a replica's gradients go to the other data ranks: seen from inside its backward, the other rank being imagined.
#include "backend/ops/backends.h"
#include "distributed/comm/counting_communicator.h"
#include "support/catch.h"
#include "support/injected_ops.h"
#include "support/tiny_training.h"

using namespace megatron;
using namespace megatron::test;

namespace {

struct Started {
  std::int64_t before_last_micro_batch = 0, under_backward = 0, all = 0;  // operations of the data group
};

// One step of two micro-batches, of a model whose gradients are three buckets.
Started play(bool overlap, bool distributed) {
  Config config = tiny_config();
  config.model.layers = 3;
  config.model.hidden_size = 640;
  config.model.ffn_hidden_size = 2560;
  config.parallel.data = 2;
  config.parallel.overlap_gradients = overlap;
  config.optimizer.share = distributed ? "state" : "none";
  config.train.global_batch_size = 4;
  CountingCommunicator world(0, 2);
  const ProcessGrid grid(world, {.data = 2});
  Backend backend = make_cpu_backend();
  auto ops = std::make_unique<InjectedOps>(std::move(backend.ops));
  InjectedOps& injected = *ops;
  backend.ops = std::move(ops);
  Replica replica(config, grid, backend);
  REQUIRE(replica.store().buckets().size() >= 3);
  TrafficMeter meter;
  grid.data().set_meter(&meter);
  Started started;
  const int norms = 2 * 3 + 1;  // per micro-batch
  injected.after_norm_backward = [&, calls = 0](const LayerNormBackwardArgs&) mutable {
    if (++calls <= norms) started.before_last_micro_batch = meter.operations;
    started.under_backward = meter.operations;
  };
  TinyBatches batches(config, 0);
  Timers timers;
  const std::span<const MicroBatch> micro_batches = batches.step(1);
  replica.forward_backward(micro_batches, 1, batches.loss(), timers);
  started.all = meter.operations;
  grid.data().set_meter(nullptr);
  return started;
}

}  // namespace

TEST_CASE("sums: distributed gradients are reduced under the last backward") {
  CHECK(play(false, false).under_backward == 0);
  const Started overlapped = play(true, false);
  CHECK(overlapped.under_backward >= 2);
  for (const bool overlap : {false, true}) {
    const Started started = play(overlap, true);
    CAPTURE(overlap);
    CHECK(started.before_last_micro_batch == 0);
    CHECK(started.under_backward == overlapped.under_backward);
    CHECK(started.all == overlapped.all);
  }
}

// On real ranks, where reductions need staging: what is planned is what is used, category by category, to the byte, on
// every rank, whatever the layout and the levers; and the staging that was reserved never grows.
#include <catch2/catch.hpp>

#include "mpi/session_of_tests.h"
#include "support/communicator_cases.h"
#include "support/tiny_training.h"

using namespace megatron;
using namespace megatron::test;

namespace {

struct Case {
  const char* name;
  int tensor, data, pipeline;
  void (*change)(Config&);
};

// Large enough that sums go in several pieces, and in several buckets.
void wide(Config& config) {
  config.model.hidden_size = 512;
  config.model.ffn_hidden_size = 2048;
  config.model.sequence_length = config.model.max_position_embeddings = 64;
}

const Case kCases[] = {
    {"data 4", 1, 4, 1, [](Config&) {}},
    {"data 4, wide, overlapping", 1, 4, 1,
     [](Config& config) {
       wide(config);
       config.parallel.overlap_gradients = true;
     }},
    {"tensor 4", 4, 1, 1, [](Config& config) { config.train.micro_batch_size = 4; }},
    {"tensor 2, data 2, sequence, wide", 2, 2, 1,
     [](Config& config) {
       wide(config);
       config.parallel.sequence_parallel = true;
       config.train.micro_batch_size = 2;
     }},
    {"tensor 2, pipeline 2, sequence, recompute", 2, 1, 2,
     [](Config& config) {
       config.parallel.sequence_parallel = true;
       config.recompute = {"full", 1};
     }},
    {"data 2, pipeline 2, gpipe", 1, 2, 2, [](Config& config) { config.parallel.schedule = "gpipe"; }},
    {"pipeline 4", 1, 1, 4, [](Config&) {}},
    {"data 4, wide, distributed optimizer", 1, 4, 1,
     [](Config& config) {
       wide(config);
       config.optimizer.distributed = true;
       config.parallel.overlap_gradients = true;
     }},
    {"tensor 2, data 2, sequence, distributed optimizer", 2, 2, 1,
     [](Config& config) {
       config.parallel.sequence_parallel = true;
       config.optimizer.distributed = true;
     }},
    // The shorter sequences' sums go whole, which needs more than the cut ones of the full length.
    {"tensor 4, curriculum", 4, 1, 1,
     [](Config& config) {
       wide(config);
       config.model.sequence_length = config.model.max_position_embeddings = 16;
       config.train.curriculum = {"fixed_discrete", 0, 0, 1, 1, {8, 16}, {1}};
     }},
    {"data 2, pipeline 2, zero bubble", 1, 2, 2, [](Config& config) { config.parallel.schedule = "zero_bubble"; }},
    {"data 2, pipeline 2, interleaved", 1, 2, 2,
     [](Config& config) {
       config.parallel.schedule = "interleaved";
       config.parallel.virtual_stages = 2;
     }},
};

}  // namespace

TEST_CASE("MPI: memory planned is memory used, by category, in every layout") {
  run_on_all_ranks("memory", [](Communicator& world) {
    if (world.size() != 4) return;
    for (const Case& test : kCases) {
      Config config = tiny_config();
      config.parallel.tensor = test.tensor;
      config.parallel.data = test.data;
      config.parallel.pipeline = test.pipeline;
      test.change(config);
      const GridShape shape{.tensor = test.tensor, .data = test.data, .pipeline = test.pipeline};
      const ProcessGrid grid(world, shape);
      Backend backend = make_cpu_backend();
      Replica replica(config, grid, backend);
      const MemoryPlan plan = plan_memory(config, shape, grid.at());
      const auto expect = [&](const char* what, std::size_t used, std::size_t planned) {
        communicator_cases::expect(used == planned, "{}, {}: {} bytes used, {} planned", test.name, what, used,
                                   planned);
      };
      expect("staging before the first step", replica.used().communication,
             plan.communication - ExecutorMemory::sum(plan.passes.gradient_buffers));
      TinyBatches batches(config, grid.data().rank());
      Timers timers;
      for (int step = 1; step <= 2; ++step) {
        replica.forward_backward(batches.step(step), step, batches.targets(), timers);
        replica.update({.learning_rate = 1e-3}, timers);
        replica.evaluate(batches.step(step), batches.targets(), timers);
      }
      const MemoryUse used = replica.used();
      expect("weights", used.weights, plan.weights);
      expect("gradients", used.gradients, plan.gradients);
      expect("optimizer", used.optimizer, plan.optimizer);
      expect("activations", used.activations, plan.activations);
      expect("communication", used.communication, plan.communication);
      expect("scratch", used.scratch, plan.scratch);
      const bool reduces = test.tensor > 1 || test.data > 1;
      communicator_cases::expect(!reduces || plan.communication > 0, "{}: no staging planned", test.name);
    }
  });
}

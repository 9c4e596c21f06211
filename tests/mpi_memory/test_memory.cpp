// On real ranks, where reductions need staging: what is planned is what is used, category by category, to the byte, on
// every rank, whatever the layout and the options; and the staging that was reserved never grows.
#include "backend/ops/backends.h"
#include "mpi/session_of_tests.h"
#include "mpi_memory/cases.h"
#include "support/catch.h"
#include "support/communicator_cases.h"

using namespace megatron;
using namespace megatron::test;

TEST_CASE("MPI: memory planned is memory used, by category, in every layout") {
  run_on_all_ranks("memory", [](Communicator& world) {
    if (world.size() != 4) return;
    for (const Case& test : kCases) {
      const Config config = test.config();
      const GridShape shape = grid_shape(config);
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
        const StepSums sums = replica.forward_backward(batches.step(step), step, batches.loss(), timers);
        replica.update(sums, {.learning_rate = 1e-3}, timers);
        replica.evaluate(batches.step(step), batches.loss().counts, timers);
      }
      const MemoryUse used = replica.used();
      expect("weights", used.weights, plan.weights);
      expect("gradients", used.gradients, plan.gradients);
      expect("optimizer", used.optimizer, plan.optimizer);
      expect("activations", used.activations, plan.activations);
      expect("communication", used.communication, plan.communication);
      expect("scratch", used.scratch, plan.scratch);
      expect("kernels", used.kernels, plan.kernels);
      const bool reduces = test.tensor > 1 || test.data > 1;
      communicator_cases::expect(!reduces || plan.communication > 0, "{}: no staging planned", test.name);
    }
  });
}

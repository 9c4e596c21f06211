// On real ranks, once warm, a training step allocates nothing, in every layout and with every option (MPI's C library
// is not counted).
#include "backend/ops/backends.h"
#include "mpi/session_of_tests.h"
#include "mpi_memory/cases.h"
#include "support/catch.h"
#include "support/communicator_cases.h"
#include "support/counted_allocations.h"

using namespace megatron;
using namespace megatron::test;

TEST_CASE("MPI: a steady training step allocates nothing in any layout") {
  run_on_all_ranks("steady step", [](Communicator& world) {
    if (world.size() != 4) return;
    for (const Case& test : kCases) {
      const Config config = test.config();
      const ProcessGrid grid(world, grid_shape(config));
      Backend backend = make_cpu_backend();
      Replica replica(config, grid, backend);
      TinyBatches batches(config, grid.data().rank());
      Timers timers;
      constexpr int kWarm = 5, kSteady = 2;
      long in_steady_steps = 0;
      for (int step = 1; step <= kWarm + kSteady; ++step) {
        const std::span<const MicroBatch> micro_batches = batches.step(step);
        const long before = allocations();
        const StepSums sums = replica.forward_backward(micro_batches, step, batches.loss(), timers);
        replica.update(sums, {.learning_rate = 1e-3}, timers);
        if (step > kWarm) in_steady_steps += allocations() - before;
      }
      communicator_cases::expect(in_steady_steps == 0, "{}: {} allocations in {} steps", test.name, in_steady_steps,
                                 kSteady);
    }
  });
}

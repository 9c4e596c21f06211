// Once warm, communication allocates nothing of its own (MPI's C library is not counted).
#include "mpi/session_of_tests.h"
#include "support/catch.h"
#include "support/communicator_cases.h"
#include "support/counted_allocations.h"

using namespace megatron;

TEST_CASE("MPI: a steady step allocates nothing") {
  run_on_all_ranks("steady", [](Communicator& world) {
    if (world.size() == 1) return;
    std::vector<float> large(3000000), small(100), part(100000), whole(100000 * static_cast<std::size_t>(world.size()));
    std::vector<float> out(5000), in(5000), exchanged(whole.size());
    std::vector<BFloat16> half(70000);
    const auto step = [&] {
      Pending first = world.start_all_reduce(communicator_cases::tensor_of(large), kPassedOn);
      Pending second = world.start_all_reduce(communicator_cases::tensor_of(small), kPassedOn);
      Pending third = world.start_reduce_scatter(communicator_cases::tensor_of(whole),
                                                 communicator_cases::tensor_of(part), kPassedOn);
      Pending send =
          world.start_send(communicator_cases::tensor_of(out), (world.rank() + 1) % world.size(), 0, kPassedOn);
      Pending receive = world.start_receive(communicator_cases::tensor_of(in),
                                            (world.rank() + world.size() - 1) % world.size(), 0, kPassedOn);
      Pending exchange = world.start_all_to_all(communicator_cases::tensor_of(whole),
                                                communicator_cases::tensor_of(exchanged), kPassedOn);
      for (Pending* pending : {&first, &second, &third, &send, &receive, &exchange}) pending->wait();
      world.all_gather(communicator_cases::tensor_of(part), communicator_cases::tensor_of(whole), kPassedOn);
      world.all_reduce(communicator_cases::tensor_of(half), kPassedOn);
      world.broadcast(communicator_cases::tensor_of(small), 0, kPassedOn);
      world.barrier();
    };
    // The use of each recycled operation may still shift for a few steps, so each grows to all sizes.
    for (int warm = 0; warm < 20; ++warm) step();
    const long before = test::allocations();
    for (int steady = 0; steady < 5; ++steady) step();
    communicator_cases::expect(test::allocations() == before, "{} allocations in five steps",
                               test::allocations() - before);
  });
}

// The MPI communicator: the same cases as the threads', on however many ranks this job has.
#include <algorithm>
#include <chrono>
#include <thread>

#include "distributed/comm/mpi_check.h"
#include "distributed/comm/mpi_communicator.h"
#include "distributed/comm/process_grid.h"
#include "mpi/session_of_tests.h"
#include "support/catch.h"
#include "support/communicator_cases.h"

using namespace megatron;

TEST_CASE("MPI: every verb") {
  for (const auto& test : communicator_cases::all_cases()) {
    INFO(test.name);
    run_on_all_ranks(test.name, test.body);
    SUCCEED();
  }
}

TEST_CASE("MPI: results are the same bits in every run") {
  run_on_all_ranks("repeat", [](Communicator& world) {
    std::vector<float> first = communicator_cases::elements_of<float>(world.rank(), 300001);
    world.all_reduce(communicator_cases::tensor_of(first), kPassedOn);
    for (int repeat = 0; repeat < 5; ++repeat) {
      std::vector<float> again = communicator_cases::elements_of<float>(world.rank(), 300001);
      world.all_reduce(communicator_cases::tensor_of(again), kPassedOn);
      communicator_cases::expect_same_bits(again, first.data(), "all-reduce", world);
    }
  });
}

TEST_CASE("MPI: a rank sends as many messages as the meter says") {
  run_on_all_ranks("messages", [](Communicator& world) {
    const auto& sender = dynamic_cast<const MpiCommunicator&>(world);
    const int size = world.size();
    std::vector<float> large(3 << 20, 1), small(100, 1), part(200000),
        whole(part.size() * static_cast<std::size_t>(size));
    TrafficMeter meter;
    world.set_meter(&meter);
    const auto compare = [&](const char* what, auto operation) {
      const std::int64_t before = sender.messages_sent();
      meter = {};
      operation();
      const std::int64_t sent = sender.messages_sent() - before;
      communicator_cases::expect(sent == meter.messages, "{}: {} messages sent, {} on the meter", what, sent,
                                 meter.messages);
    };
    compare("small all-reduce", [&] { world.all_reduce(communicator_cases::tensor_of(small), kPassedOn); });
    compare("large all-reduce", [&] { world.all_reduce(communicator_cases::tensor_of(large), kPassedOn); });
    compare("all-gather", [&] {
      world.all_gather(communicator_cases::tensor_of(part), communicator_cases::tensor_of(whole), kPassedOn);
    });
    compare("reduce-scatter", [&] {
      world.reduce_scatter(communicator_cases::tensor_of(whole), communicator_cases::tensor_of(part), kPassedOn);
    });
    std::vector<float> exchanged(whole.size());
    for (const std::size_t in_a_part : {1UL, 7777UL, 200000UL}) {  // several parts to a chunk
      const auto elements = static_cast<std::int64_t>(in_a_part) * size;
      compare("all-to-all", [&] {
        world.all_to_all(communicator_cases::tensor_of(whole).slice(0, 0, elements),
                         communicator_cases::tensor_of(exchanged).slice(0, 0, elements), kPassedOn);
      });
    }
    const auto three = world.split(world.rank() / 3, 0, "three");
    std::vector<std::uint8_t> cut(static_cast<std::size_t>(three->size()) * 6000000), cut_exchanged(cut.size());
    three->set_meter(&meter);
    compare("all-to-all of cut parts", [&] {
      three->all_to_all(communicator_cases::tensor_of(cut), communicator_cases::tensor_of(cut_exchanged), kPassedOn);
    });
    compare("broadcast", [&] { world.broadcast(communicator_cases::tensor_of(large), size - 1, kPassedOn); });
    compare("texts", [&] { world.gather_texts("text", size / 2); });
    world.set_meter(nullptr);
  });
}

TEST_CASE("MPI: an operation ends by progress() alone") {
  run_on_all_ranks("progress", [](Communicator& world) {
    if (world.size() == 1) return;
    std::vector<float> values(8 << 20, static_cast<float>(world.rank() + 1));  // 32 MiB: several chunks
    const auto sum = static_cast<float>(world.size() * (world.size() + 1) / 2);
    Pending pending = world.start_all_reduce(communicator_cases::tensor_of(values), kPassedOn);
    const volatile float& last = values.back();  // only a test looks before wait()
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(60);
    while (last != sum && std::chrono::steady_clock::now() < deadline) {
      world.progress();
      std::this_thread::yield();
    }
    const float seen = last;
    communicator_cases::expect(seen == sum, "before wait() the last element is {}, not the sum {}", seen, sum);
    pending.wait();
    const auto wrong = std::count_if(values.begin(), values.end(), [&](float value) { return value != sum; });
    communicator_cases::expect(wrong == 0, "{} elements are not the sum", wrong);
  });
}

TEST_CASE("MPI: an all-to-all ends by progress() alone") {
  run_on_all_ranks("progress of an all-to-all", [](Communicator& world) {
    if (world.size() == 1) return;
    const std::int64_t part = (4 << 20) / world.size();  // 16 MiB in all: several chunks
    std::vector<float> send(static_cast<std::size_t>(part * world.size())), receive(send.size(), -1);
    const auto part_of = [&](std::size_t i) { return static_cast<int>(i) / static_cast<int>(part); };
    for (std::size_t i = 0; i < send.size(); ++i) send[i] = static_cast<float>(world.rank() * 100 + part_of(i));
    Pending pending =
        world.start_all_to_all(communicator_cases::tensor_of(send), communicator_cases::tensor_of(receive), kPassedOn);
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(60);
    while (!pending.ready() && std::chrono::steady_clock::now() < deadline) {
      world.progress();
      std::this_thread::yield();
    }
    communicator_cases::expect(pending.ready(), "not complete by progress()");
    pending.wait();
    for (std::size_t i = 0; i < receive.size(); ++i) {
      const auto wanted = static_cast<float>(part_of(i) * 100 + world.rank());
      communicator_cases::expect(receive[i] == wanted, "element {} is {}, not {}", i, receive[i], wanted);
    }
  });
}

// Rank 0 only computes, as it were; the sum cannot end without it, and no group but data has anything to say.
TEST_CASE("MPI: progress() of a group of one rank moves every group's operations") {
  run_on_all_ranks("progress alone", [](Communicator& world) {
    if (world.size() == 1) return;
    const ProcessGrid grid(world, {.data = world.size()});
    std::vector<float> values(8 << 20, 1);  // 32 MiB: several chunks
    Pending sum = grid.data().start_all_reduce(communicator_cases::tensor_of(values), kPassedOn);
    const volatile float& last = values.back();  // only a test looks before wait()
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    while (world.rank() == 0 && last == 1 && std::chrono::steady_clock::now() < deadline) {
      grid.tensor().progress();
      std::this_thread::yield();
    }
    const float seen = last;
    communicator_cases::expect(world.rank() != 0 || seen != 1, "nothing has moved");
    sum.wait();
  });
}

TEST_CASE("MPI: decisions do not wait for what is in flight between data ranks") {
  run_on_all_ranks("control", [](Communicator& world) {
    if (world.size() == 1) return;
    const ProcessGrid grid(world, {.data = world.size()});
    std::vector<float> part(1 << 20, 1), whole(part.size() * static_cast<std::size_t>(world.size()));
    Pending gathers[3];
    const auto start = [&] {
      for (Pending& gather : gathers) {
        gather = grid.data().start_all_gather(communicator_cases::tensor_of(part), communicator_cases::tensor_of(whole),
                                              kPassedOn);
      }
    };
    // The last rank sends nothing of a gather before it has heard the decision.
    const bool late = world.rank() == world.size() - 1;
    if (!late) start();
    communicator_cases::expect(grid.control().any_rank(late), "the decision is another one");
    if (late) start();
    for (Pending& gather : gathers) gather.wait();
  });
}

TEST_CASE("MPI: the grid on real ranks") {
  run_on_all_ranks("grid", [](Communicator& world) {
    GridShape shape;
    if (world.size() % 2 == 0) shape.tensor = 2;
    if (world.size() % 4 == 0) shape.pipeline = 2;
    if (world.size() % 8 == 0) shape.context = 2;
    shape.data = world.size() / (shape.tensor * shape.context * shape.pipeline);
    if (shape.data % 2 == 0) shape.expert = 2;
    if (shape.pipeline == 2) shape.ties = {{0, 1}, {1}};
    const ProcessGrid grid(world, shape);
    const auto sum = [](Communicator& group, double value) { return group.all_reduce_value(value, kPassedOn); };
    communicator_cases::expect(sum(grid.tensor(), 1) == shape.tensor, "tensor group");
    communicator_cases::expect(sum(grid.data(), 1) == shape.data, "data group");
    communicator_cases::expect(sum(grid.context(), 1) == shape.context, "context group");
    communicator_cases::expect(sum(grid.copies(), 1) == shape.copies(), "copies group");
    communicator_cases::expect(sum(grid.expert(), 1) == shape.expert, "expert group");
    communicator_cases::expect(sum(grid.copies(CopyGroup::experts), 1) == shape.copies(CopyGroup::experts),
                               "copies of experts");
    communicator_cases::expect(sum(grid.control(), 1) == shape.data, "control group");
    communicator_cases::expect(sum(grid.model(), 1) == shape.tensor * shape.pipeline, "model group");
    const int other_end = (world.rank() + world.size() / 2) % world.size();
    const double expected = shape.pipeline == 2 ? world.rank() + other_end : world.rank();
    for (int i = 0; i < grid.ties(); ++i) {
      communicator_cases::expect(sum(grid.tie(i), world.rank()) == (i == 0 ? expected : world.rank()), "tie {}", i);
    }
    communicator_cases::expect(grid.agree(world.rank() == world.size() - 1), "the last rank's flag");
    communicator_cases::expect(sum(grid.pipeline(), world.rank()) == expected, "pipeline group");
  });
}

TEST_CASE("MPI: the check macro throws MPI's words with the expression and place") {
  int size = 0;
  try {
    MPI_CHECK(MPI_Comm_size(MPI_COMM_NULL, &size));
    FAIL("nothing was thrown");
  } catch (const Error& error) {
    const std::string message = error.what();
    INFO(message);
    CHECK(error.kind() == ErrorKind::communication);
    CHECK(message.find("MPI_Comm_size(MPI_COMM_NULL, &size)") != std::string::npos);
    CHECK(message.find("MPI_ERR_COMM") != std::string::npos);
    CHECK(message.find("test_mpi_communicator.cpp") != std::string::npos);
  }
}

TEST_CASE("MPI: the session knows itself") {
  MpiSession& session = session_of_tests();
  CHECK(session.size() == session.world().size());
  CHECK(session.local_rank() < session.local_size());
  CHECK(!session.host().empty());
  CHECK(session.where().find(session.host()) != std::string::npos);
  CHECK(MpiSession::library_version().find("MPI") != std::string::npos);
}

TEST_CASE("MPI: the ranks of a node see what the others are doing", "[fault-31]") {
  run_on_all_ranks("activity", [](Communicator& world) {
    MpiSession& session = session_of_tests();
    const std::vector<Activity*> all = session.neighbours();
    CHECK(static_cast<int>(all.size()) == session.local_size());
    CHECK(world.activity() == &session.activity());
    CHECK(all[static_cast<std::size_t>(session.local_rank())] == &session.activity());
    session.activity().set_owner(session.rank(), 100 + session.rank());
    session.activity().set_step(1000 + session.rank());
    world.barrier();
    for (const Activity* activity : all) {
      CHECK(activity->process() == 100 + activity->rank());
      CHECK(activity->step() == 1000 + activity->rank());
    }
    world.barrier();
  });
}

// Not part of the tests: test_mpi "[benchmark]" prints bandwidth and latency.
TEST_CASE("MPI: how fast", "[.][benchmark]") {
  run_on_all_ranks("benchmark", [](Communicator& world) {
    for (const std::int64_t elements : {1LL << 10, 1LL << 14, 1LL << 18, 1LL << 21, 1LL << 24}) {
      std::vector<float> values(static_cast<std::size_t>(elements), 1.0F);
      double seconds = 1e9;  // the best of some: the machine may be busy
      for (int repeat = 0; repeat < (elements < (1 << 16) ? 300 : 15); ++repeat) {
        world.barrier();
        const auto start = std::chrono::steady_clock::now();
        world.all_reduce(communicator_cases::tensor_of(values), kPassedOn);
        seconds = std::min(seconds, std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
      }
      if (world.rank() == 0) {
        fmt::print("all-reduce of {:>10} bytes on {} ranks: {:>10.1f} us, {:.2f} GB/s\n", elements * 4, world.size(),
                   seconds * 1e6, static_cast<double>(elements) * 4e-9 / seconds);
      }
    }
  });
}

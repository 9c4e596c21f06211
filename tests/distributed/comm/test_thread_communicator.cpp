// The thread communicator: every verb at several sizes, and what happens when a rank fails or never comes.
#include <atomic>
#include <chrono>
#include <thread>

#include "distributed/comm/thread_communicator.h"
#include "support/catch.h"
#include "support/communicator_cases.h"

using namespace megatron;
using namespace std::chrono_literals;

namespace {

// The message and kind of what run_as_threads throws.
std::pair<ErrorKind, std::string> error_of(int ranks, const std::function<void(Communicator&)>& body,
                                           std::chrono::milliseconds timeout = 60s) {
  try {
    run_as_threads(ranks, body, timeout);
  } catch (const Error& error) {
    return {error.kind(), error.what()};
  }
  return {ErrorKind::internal, "nothing was thrown"};
}

float sum_of_ones(Communicator& group) {
  float value = 1;
  group.all_reduce(Tensor(&value, {1}, DType::f32), kPassedOn);
  return value;
}

}  // namespace

TEST_CASE("threads: every verb") {
  for (const auto& test : communicator_cases::all_cases()) {
    for (const int ranks : {1, 2, 3, 4, 8}) {
      INFO(test.name << ", " << ranks << " ranks");
      CHECK_NOTHROW(run_as_threads(ranks, test.body));
    }
  }
}

TEST_CASE("threads: a failing rank wakes waiting ranks and its error is reported") {
  const auto start = std::chrono::steady_clock::now();
  std::atomic<int> woken = 0;
  for (const int failing : {0, 3}) {
    woken = 0;
    const auto [kind, message] = error_of(4, [&](Communicator& world) {
      const auto group = world.split(0, 0, "tensor");
      if (world.rank() == failing) fail(ErrorKind::data, "shard is gone");
      try {
        if (world.rank() == 1) {
          float value = 0;
          group->start_receive(Tensor(&value, {1}, DType::f32), failing, 0, kPassedOn).wait();
        } else {
          sum_of_ones(world.rank() == 2 ? *group : world);
        }
      } catch (const Error& error) {
        if (error.kind() == ErrorKind::communication &&
            std::string(error.what()).find(fmt::format("rank {} failed: shard is gone", failing)) !=
                std::string::npos) {
          ++woken;
        }
        throw;
      }
    });
    CHECK(kind == ErrorKind::data);
    CHECK(message == "shard is gone");
    CHECK(woken == 3);
  }
  CHECK(std::chrono::steady_clock::now() - start < 10s);
}

TEST_CASE("threads: operations in flight are abandoned when their rank throws") {
  const auto [kind, message] = error_of(3, [&](Communicator& world) {
    std::vector<float> values(100000, 1.0F);
    const Pending sum = world.start_all_reduce(communicator_cases::tensor_of(values), kPassedOn);
    if (world.rank() == 1) fail(ErrorKind::numerics, "loss is not a number");
    world.barrier();
    throw Error(ErrorKind::internal, "the barrier let a rank through");
  });
  CHECK(kind == ErrorKind::numerics);
  CHECK(message == "loss is not a number");
}

TEST_CASE("threads: waiting for an absent rank is an error with group and verb") {
  const auto [kind, message] = error_of(
      3,
      [](Communicator& world) {
        const auto group = world.split(0, 0, "data");
        if (group->rank() != 2) sum_of_ones(*group);
      },
      200ms);
  CHECK(kind == ErrorKind::communication);
  CHECK(message.find("'data'") != std::string::npos);
  CHECK(message.find("all-reduce") != std::string::npos);
  CHECK(message.find("of 3") != std::string::npos);

  const auto [receive_kind, receive_message] = error_of(
      2,
      [](Communicator& world) {
        float value = 0;
        if (world.rank() == 0) world.start_receive(Tensor(&value, {1}, DType::f32), 1, 5, kPassedOn).wait();
      },
      200ms);
  CHECK(receive_kind == ErrorKind::communication);
  CHECK(receive_message.find("receive") != std::string::npos);
}

TEST_CASE("threads: ranks that disagree about the operation are told") {
  const auto [kind, message] = error_of(2, [](Communicator& world) {
    std::vector<float> values(world.rank() == 0 ? 7 : 8);
    world.all_reduce(communicator_cases::tensor_of(values), kPassedOn);
  });
  CHECK(kind == ErrorKind::internal);
  CHECK(message.find("of 7 f32") != std::string::npos);
  CHECK(message.find("of 8 f32") != std::string::npos);

  const auto [exchange_kind, exchange_message] = error_of(2, [](Communicator& world) {
    std::vector<float> send(world.rank() == 0 ? 8 : 10), receive(send.size());
    world.all_to_all(communicator_cases::tensor_of(send), communicator_cases::tensor_of(receive), kPassedOn);
  });
  CHECK(exchange_kind == ErrorKind::internal);
  CHECK(exchange_message.find("all-to-all of 4 f32") != std::string::npos);
  CHECK(exchange_message.find("all-to-all of 5 f32") != std::string::npos);

  const auto [size_kind, size_message] = error_of(2, [](Communicator& world) {
    std::vector<float> values(world.rank() == 0 ? 7 : 8);
    if (world.rank() == 0) world.start_send(communicator_cases::tensor_of(values), 1, 0, kPassedOn).wait();
    if (world.rank() == 1) world.start_receive(communicator_cases::tensor_of(values), 0, 0, kPassedOn).wait();
  });
  CHECK(size_kind == ErrorKind::communication);
  CHECK(size_message.find("expects 32 bytes from rank 0 on channel 0 but gets 28") != std::string::npos);
}

TEST_CASE("communicators refuse what they cannot do") {
  const auto refused = [](const std::function<void(Communicator&)>& call, const std::string& word) {
    const auto [kind, message] = error_of(2, call);
    INFO(message);
    CHECK(kind == ErrorKind::internal);
    CHECK(message.find(word) != std::string::npos);
  };
  refused([](Communicator& world) { world.all_reduce(Tensor(), kPassedOn); }, "absent");
  refused(
      [](Communicator& world) {
        std::vector<float> values(16);
        world.all_reduce(Tensor(values.data(), {4, 4}, DType::f32).slice(1, 0, 2), kPassedOn);
      },
      "not contiguous");
  refused(
      [](Communicator& world) {
        std::vector<std::uint8_t> values(4);
        world.all_reduce(Tensor(values.data(), {4}, DType::u8), kPassedOn);
      },
      "u8");
  refused(
      [](Communicator& world) {
        std::vector<float> values(16);
        world.all_gather(Tensor(values.data(), {5}, DType::f32), Tensor(values.data(), {11}, DType::f32), kPassedOn);
      },
      "is not 2 parts");
  refused(
      [](Communicator& world) {
        std::vector<float> values(16);
        const Tensor whole(values.data(), {16}, DType::f32);
        world.reduce_scatter(whole, whole.slice(0, 4, 8), kPassedOn);
      },
      "overlap");
  refused(
      [](Communicator& world) {
        float value = 0;
        world.start_send(Tensor(&value, {1}, DType::f32), world.rank(), 0, kPassedOn).wait();
      },
      "oneself");
}

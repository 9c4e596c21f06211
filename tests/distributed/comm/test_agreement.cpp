// agree: work that may fail on some ranks alone ends on all of them in the same way.
#include "distributed/comm/agreement.h"

#include <atomic>
#include <new>
#include <stdexcept>
#include <thread>

#include "base/system/host_name.h"
#include "base/system/memory_usage.h"
#include "support/catch.h"
#include "support/errors_by_rank.h"

using namespace megatron;
using namespace megatron::test;

namespace {

using Errors = std::vector<std::string>;

/// Error that each of `ranks` ranks reports where `work` runs on it.
Errors agreed(int ranks, const std::function<void(int rank)>& work, std::optional<ErrorKind> kind = {}) {
  return errors_by_rank(ranks, [&](Communicator& world) {
    agree(
        world, [&] { work(world.rank()); }, kind);
  });
}

}  // namespace

TEST_CASE("agreement: work that succeeds everywhere runs once per rank") {
  std::atomic<int> runs = 0;
  CHECK(agreed(4, [&](int) { ++runs; }) == Errors(4));
  CHECK(runs == 4);
  CHECK(agreed(1, [](int) {}) == Errors(1));
}

TEST_CASE("agreement: one rank's error is thrown on all, with its kind and rank") {
  for (const int bad : {0, 1, 3}) {
    const Errors errors = agreed(4, [&](int rank) {
      if (rank == bad) fail(ErrorKind::data, "shard {} is damaged", rank);
    });
    CHECK(errors == Errors(4, fmt::format("data: rank {} on {}: shard {} is damaged", bad, host_name(), bad)));
  }
}

TEST_CASE("agreement: the lowest failing rank's error is thrown") {
  const Errors errors = agreed(4, [](int rank) {
    if (rank == 1) fail(ErrorKind::checkpoint, "first");
    if (rank == 3) fail(ErrorKind::data, "second");
  });
  CHECK(errors == Errors(4, "checkpoint: rank 1 on " + host_name() + ": first"));
}

TEST_CASE("agreement: work of rank 0 alone runs there once and fails everywhere") {
  std::atomic<int> runs = 0;
  const auto on_root = [](const std::function<void()>& work) {
    return errors_by_rank(3, [&](Communicator& world) { on_rank_0(world, work, ErrorKind::filesystem); });
  };
  CHECK(on_root([&] { ++runs; }) == Errors(3));
  CHECK(runs == 1);
  CHECK(on_root([] { fail(ErrorKind::data, "disk full"); }) ==
        Errors(3, "filesystem: rank 0 on " + host_name() + ": disk full"));
}

TEST_CASE("agreement: an error that all ranks share names no rank") {
  CHECK(agreed(3, [](int) { fail(ErrorKind::configuration, "no such key"); }) ==
        Errors(3, "configuration: no such key"));
  CHECK(agreed(1, [](int) { fail(ErrorKind::configuration, "no such key"); }) ==
        Errors(1, "configuration: no such key"));
}

TEST_CASE("agreement: the caller's kind replaces all but internal and numerics") {
  const auto kind_of = [](ErrorKind thrown) {
    return agreed(
               2, [&](int) { fail(thrown, "x"); }, ErrorKind::checkpoint)
        .at(1);
  };
  CHECK(kind_of(ErrorKind::data) == "checkpoint: x");
  CHECK(kind_of(ErrorKind::filesystem) == "checkpoint: x");
  CHECK(kind_of(ErrorKind::internal) == "internal: x");
  CHECK(kind_of(ErrorKind::numerics) == "numerics: x");
}

TEST_CASE("agreement: exceptions of other types are internal errors on all ranks") {
  CHECK(agreed(2, [](int rank) {
          if (rank == 1) throw std::out_of_range("index 7");
        }) == Errors(2, "internal: rank 1 on " + host_name() + ": index 7"));
  CHECK(agreed(2, [](int rank) {
          if (rank == 0) throw std::bad_alloc();
        }) == Errors(2, "internal: rank 0 on " + host_name() + ": " + kOutOfMemory));
}

TEST_CASE("agreement: messages keep spaces, line breaks and digits") {
  const std::string text = "2 lines:\n  7 of 9\n";
  CHECK(agreed(2, [&](int) { fail(ErrorKind::data, "{}", text); }) == Errors(2, "data: " + text));
}

TEST_CASE("agreement: no rank returns before all have done the work") {
  std::atomic<int> done = 0;
  std::atomic<bool> early = false;
  run_as_threads(4, [&](Communicator& world) {
    agree(world, [&] {
      if (world.rank() == 2) std::this_thread::sleep_for(std::chrono::milliseconds(20));
      ++done;
    });
    if (done != 4) early = true;
  });
  CHECK_FALSE(early);
}

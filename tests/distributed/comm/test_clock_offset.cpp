// Clocks that differ by what is known: the measured offset is right to within the error that it says.
#include <chrono>

#include "distributed/comm/clock_offset.h"
#include "distributed/comm/thread_communicator.h"
#include "support/catch.h"

using namespace megatron;

namespace {

std::int64_t nanoseconds() {
  return std::chrono::nanoseconds(std::chrono::steady_clock::now().time_since_epoch()).count();
}

}  // namespace

TEST_CASE("clock offset: known skews are found to within the error") {
  constexpr std::int64_t kSkews[] = {0, 5'000'000'000, -3'000'000'000, 12'345};
  for (const int ranks : {1, 2, 4}) {
    std::vector<ClockOffset> found(static_cast<std::size_t>(ranks));
    run_as_threads(ranks, [&](Communicator& world) {
      const std::int64_t skew = kSkews[world.rank()];
      found[static_cast<std::size_t>(world.rank())] =
          measure_clock_offset(world, [skew] { return nanoseconds() + skew; });
    });
    CHECK(found[0].ahead == 0);
    CHECK(found[0].error == 0);
    for (std::size_t rank = 1; rank < found.size(); ++rank) {
      CAPTURE(rank, found[rank].ahead, found[rank].error);
      CHECK(std::abs(found[rank].ahead - kSkews[rank]) <= found[rank].error);
      CHECK(found[rank].error > 0);
      CHECK(found[rank].error < 1'000'000'000);  // so that the skews of seconds are told apart
    }
  }
}

TEST_CASE("clock offset: a slow way there and back is not the one that counts") {
  // Rank 1's answers take long but for one: by rank 0's clock, which stands still except where rank 1 moves it.
  std::atomic<std::int64_t> time = 1000;
  int answers = 0;
  ClockOffset found;
  run_as_threads(2, [&](Communicator& world) {
    const bool first = world.rank() == 0;
    const ClockOffset offset = measure_clock_offset(world, [&time, &answers, first] {
      if (first) return time.load();
      const std::int64_t delay = ++answers == 7 ? 10 : 400;
      time += delay / 2;
      const std::int64_t mine = time.load() + 70'000;
      time += delay / 2;
      return mine;
    });
    if (!first) found = offset;
  });
  CHECK(found.ahead == 70'000);
  CHECK(found.error == 5);
}

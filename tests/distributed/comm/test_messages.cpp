// How the number of messages that a rank sends grows with the job: decisions with its logarithm, sums with their group.
#include <cmath>

#include "distributed/comm/agreement.h"
#include "distributed/comm/counting_communicator.h"
#include "distributed/comm/messages.h"
#include "distributed/comm/process_grid.h"
#include "support/catch.h"

using namespace megatron;

namespace {

std::vector<int> some_ranks(int ranks) {
  return {0, 1, 2, 3, ranks / 2, ranks / 2 - 1, ranks - 2, ranks - 1};
}

}  // namespace

TEST_CASE("messages: decisions and texts grow with the logarithm of the job") {
  for (const int ranks : {8, 64, 512, 4096}) {
    const auto steps = static_cast<std::int64_t>(std::log2(ranks));
    for (const int rank : some_ranks(ranks)) {
      CAPTURE(ranks, rank);
      CountingCommunicator world(rank, ranks);
      TrafficMeter meter;
      world.set_meter(&meter);
      const auto sent = [&](auto&& operation) {
        meter = {};
        operation();
        return meter.messages;
      };
      CHECK(sent([&] { world.any_rank(false); }) <= std::max(7, static_cast<int>(steps) + 1));  // 7: direct, among 8
      CHECK(sent([&] { agree(world, [] {}); }) <= std::max(7, static_cast<int>(steps) + 1));
      CHECK(sent([&] { world.broadcast_text("a configuration", 0); }) <= 2 * steps);
      CHECK(sent([&] { world.gather_texts("a host", 0); }) <= 2);
      std::vector<double> wishes(4);
      CHECK(sent([&] { world.all_reduce_values(wishes, kPassedOnMaximum); }) <=
            std::max(7, static_cast<int>(steps) + 1));
    }
  }
}

TEST_CASE("messages: a small all-reduce over the tree sends 2 (ranks - 1) in all") {
  for (const int ranks : {9, 12, 64, 1000, 4096}) {
    std::int64_t all = 0;
    for (int rank = 0; rank < ranks; ++rank) all += messages_of_all_reduce(1, 8, rank, ranks);
    CHECK(all == 2 * (ranks - 1));
  }
}

TEST_CASE("messages: sums in chunks go to each rank once per chunk and way") {
  const std::int64_t chunk = kChunkBytes / 4;
  for (const int ranks : {2, 8, 512}) {
    CHECK(messages_of_all_reduce(3 * chunk, 4, 0, ranks) == 2 * 3 * (ranks - 1));
    CHECK(messages_of_reduce_scatter(3 * chunk / ranks, 4, ranks) == 3 * (ranks - 1));
  }
  CHECK(messages_of_all_gather(3 * chunk / 8, 4, 8) == 3 * 7);
  for (const int ranks : {2, 8, 512}) {
    CHECK(messages_of_all_to_all(1, 4, ranks) == ranks - 1);
    CHECK(messages_of_all_to_all(chunk, 4, ranks) == ranks - 1);
    CHECK(messages_of_all_to_all(3 * chunk, 4, ranks) == 3 * (ranks - 1));
  }
  CHECK(messages_of_all_to_all(3 * chunk / 2, 4, 2) == 2);
  CHECK(messages_of_all_to_all(3 * chunk / 2, 4, 3) == 4);  // a chunk ends within each of the two parts
  CHECK(messages_of_all_to_all(3 * chunk / 2, 4, 4) == 6);
  CHECK(messages_of_send(1) == 1);
  CHECK(messages_of_send((std::int64_t{1} << 30) + 1) == 2);
}

TEST_CASE("messages: a tree reaches every rank once") {
  for (const int ranks : {1, 2, 3, 8, 9, 31, 1000}) {
    int reached = 1;
    for (int rank = 0; rank < ranks; ++rank) reached += tree_children(rank, ranks);
    CHECK(reached == ranks);
  }
}

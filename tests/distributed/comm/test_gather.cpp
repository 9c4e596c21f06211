// Values of any kind between ranks.
#include "distributed/comm/gather.h"

#include <cmath>
#include <cstdint>
#include <limits>
#include <map>

#include "distributed/comm/counting_communicator.h"
#include "distributed/comm/thread_communicator.h"
#include "support/catch.h"

using namespace megatron;

namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

struct Fact {
  std::string host;
  std::int64_t least = 0;
  std::uint64_t most = 0;
  std::vector<double> numbers;
  std::map<std::string, int> counts;
};
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(Fact, host, least, most, numbers, counts)

Fact fact_of(int rank) {
  return {.host = std::string("node\xFF") + '\0' + std::to_string(rank),
          .least = std::numeric_limits<std::int64_t>::min() + rank,
          .most = std::numeric_limits<std::uint64_t>::max() - static_cast<std::uint64_t>(rank),
          .numbers = {rank / 3.0, -0.0, 5e-324, 0.1f, kInfinity, -kInfinity, std::nan("")},
          .counts = {{"rank", rank}}};
}

/// Whether it is fact_of(rank), every float to the bit but for that of a NaN.
bool is_fact_of(int rank, const Fact& found) {
  const Fact want = fact_of(rank);
  bool same = found.host == want.host && found.least == want.least && found.most == want.most &&
              found.counts == want.counts && found.numbers.size() == want.numbers.size();
  for (std::size_t i = 0; same && i < want.numbers.size(); ++i) {
    const double a = found.numbers[i], b = want.numbers[i];
    same = std::isnan(b) ? std::isnan(a) : a == b && std::signbit(a) == std::signbit(b);
  }
  return same;
}

/// How many of the values are the facts of their ranks.
std::size_t facts_in_order(const std::vector<Fact>& values) {
  std::size_t right = 0;
  for (std::size_t rank = 0; rank < values.size(); ++rank) right += is_fact_of(static_cast<int>(rank), values[rank]);
  return right;
}

/// By rank, what `body` returns on it.
template <class Body>
std::vector<std::size_t> on_ranks(int ranks, const Body& body) {
  std::vector<std::size_t> results(static_cast<std::size_t>(ranks));
  run_as_threads(ranks, [&](Communicator& world) { results[static_cast<std::size_t>(world.rank())] = body(world); });
  return results;
}

using Counts = std::vector<std::size_t>;

}  // namespace

TEST_CASE("gather: the values arrive exactly, by rank, at the root alone") {
  const auto gathered_at = [](int root) {
    return [root](Communicator& world) { return facts_in_order(gather(world, fact_of(world.rank()), root)); };
  };
  CHECK(on_ranks(1, gathered_at(0)) == Counts{1});
  CHECK(on_ranks(5, gathered_at(0)) == Counts{5, 0, 0, 0, 0});
  CHECK(on_ranks(5, gathered_at(3)) == Counts{0, 0, 0, 5, 0});
}

TEST_CASE("gather: on all, every rank has every value") {
  const Counts all =
      on_ranks(4, [](Communicator& world) { return facts_in_order(gather_on_all(world, fact_of(world.rank()))); });
  CHECK(all == Counts{4, 4, 4, 4});
}

TEST_CASE("gather: broadcast gives the root's value to every rank") {
  const Counts right = on_ranks(
      4, [](Communicator& world) -> std::size_t { return is_fact_of(2, broadcast(world, fact_of(world.rank()), 2)); });
  CHECK(right == Counts{1, 1, 1, 1});
}

TEST_CASE("gather: plain types need no conversion of their own") {
  run_as_threads(3, [](Communicator& world) {
    const auto sets = gather_on_all(world, std::vector<std::string>(static_cast<std::size_t>(world.rank()), "x"));
    verify(sets.size() == 3 && sets[0].empty() && sets[2] == std::vector<std::string>{"x", "x"}, ErrorKind::internal,
           "texts of {} ranks", sets.size());
  });
}

TEST_CASE("gather: its messages are those of gather_texts") {
  for (const int rank : {0, 1, 6}) {
    CountingCommunicator world(rank, 8);
    TrafficMeter meter;
    world.set_meter(&meter);
    world.gather_texts("a text", 0);
    const auto expected = std::pair(meter.operations, meter.messages);
    meter = {};
    gather(world, fact_of(rank));
    CHECK(std::pair(meter.operations, meter.messages) == expected);
  }
}

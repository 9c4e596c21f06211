#include <numeric>
#include <vector>

#include "backend/ops/backends.h"
#include "backend/ops/device.h"
#include "backend/ops/ops.h"
#include "distributed/comm/thread_communicator.h"
#include "distributed/parallel/tensor_region.h"
#include "support/catch.h"
#include "support/tensors.h"

using namespace megatron;
using namespace megatron::test;

namespace {

constexpr std::int64_t kRows = 8, kSamples = 2, kWidth = 3;
constexpr std::int64_t kWhole = kRows * kSamples * kWidth;

// Small whole numbers: every sum is exact.
float outside_value(std::int64_t index) {
  return static_cast<float>(index % 11 - 5);
}
float share_value(int rank, std::int64_t index) {
  return static_cast<float>((rank + 2) * (index % 7) - 3);
}

struct RankResults {
  std::vector<float> entered, left;
  std::int64_t first = 0;  // index in the whole of the outside tensor's first element
  bool alias_entered = false, alias_share = false;
  std::size_t arena_bytes = 0;
};

// Enters with this rank's part of the outside tensor and leaves with its own share.
RankResults enter_and_leave(const TensorRegion& region) {
  RankResults results;
  Backend backend = make_cpu_backend();
  const Buffer memory(*backend.device, 1 << 14);
  Arena arena("arena", memory);
  const std::int64_t rows = region.local_sequence_length(kRows);
  results.first = region.local_sequence_offset(kRows) * kSamples * kWidth;

  Owned<float> x({rows, kSamples, kWidth}), y(x.shape());
  for (std::int64_t i = 0; i < x.elements(); ++i) x[i] = outside_value(results.first + i);
  const ConstTensor entered = region.enter(arena, x);
  results.alias_entered = entered.data() == x.tensor().data();
  results.entered.assign(entered.as<float>(), entered.as<float>() + entered.elements());

  const Tensor share = region.partial_sum_buffer(arena, y);
  results.alias_share = share.data() == y.tensor().data();
  for (std::int64_t i = 0; i < share.elements(); ++i) share.as<float>()[i] = share_value(region.rank(), i);
  region.start_leave(share, y, kOutputShares).wait();
  results.left = y.copied_values();
  results.arena_bytes = arena.used();
  return results;
}

std::vector<RankResults> on_ranks(int ranks, bool sequence_parallel) {
  std::vector<RankResults> results(static_cast<std::size_t>(ranks));
  run_as_threads(ranks, [&](Communicator& world) {
    const ProcessGrid grid(world, {.tensor = ranks});
    const TensorRegion region(grid, sequence_parallel);
    results[static_cast<std::size_t>(world.rank())] = enter_and_leave(region);
  });
  return results;
}

}  // namespace

TEST_CASE("tensor region: without sequence parallelism it leaves with the sum") {
  const int ranks = GENERATE(1, 2, 4);
  for (const RankResults& rank : on_ranks(ranks, false)) {
    CHECK(rank.alias_entered);
    CHECK(rank.alias_share);
    CHECK(rank.arena_bytes == 0);
    CHECK(rank.first == 0);
    REQUIRE(rank.left.size() == kWhole);
    for (std::int64_t i = 0; i < kWhole; ++i) {
      float sum = 0;
      for (int r = 0; r < ranks; ++r) sum += share_value(r, i);
      REQUIRE(rank.left[static_cast<std::size_t>(i)] == sum);
    }
  }
}

TEST_CASE("tensor region: with sequence parallelism it leaves with its slice") {
  const int ranks = GENERATE(2, 4);
  const std::vector<RankResults> results = on_ranks(ranks, true);
  for (int rank = 0; rank < ranks; ++rank) {
    const RankResults& result = results[static_cast<std::size_t>(rank)];
    CHECK_FALSE(result.alias_entered);
    CHECK_FALSE(result.alias_share);
    CHECK(result.first == rank * kWhole / ranks);
    REQUIRE(result.entered.size() == kWhole);
    for (std::int64_t i = 0; i < kWhole; ++i) {
      REQUIRE(result.entered[static_cast<std::size_t>(i)] == outside_value(i));
    }
    REQUIRE(result.left.size() == static_cast<std::size_t>(kWhole / ranks));
    for (std::int64_t i = 0; i < kWhole / ranks; ++i) {
      float sum = 0;
      for (int r = 0; r < ranks; ++r) sum += share_value(r, result.first + i);
      REQUIRE(result.left[static_cast<std::size_t>(i)] == sum);
    }
  }
}

TEST_CASE("sequence parallelism on one rank is nothing") {
  const std::vector<RankResults> results = on_ranks(1, true);
  CHECK(results[0].alias_entered);
  CHECK(results[0].alias_share);
}

// <enter(x), shares> = <x, leave(shares)>, over all ranks: each is the other's backward.
TEST_CASE("enter and leave are each other's transpose") {
  const int ranks = GENERATE(1, 2, 4);
  const bool sequence_parallel = GENERATE(false, true);
  double inside = 0, outside = 0;
  const std::vector<RankResults> results = on_ranks(ranks, sequence_parallel);
  for (int rank = 0; rank < ranks; ++rank) {
    const RankResults& result = results[static_cast<std::size_t>(rank)];
    for (std::int64_t i = 0; i < kWhole; ++i) {
      inside +=
          static_cast<double>(result.entered[static_cast<std::size_t>(i)]) * static_cast<double>(share_value(rank, i));
    }
    // Elements of which every rank holds a copy count once.
    if (!sequence_parallel && rank > 0) continue;
    for (std::size_t i = 0; i < result.left.size(); ++i) {
      outside += static_cast<double>(outside_value(result.first + static_cast<std::int64_t>(i))) *
                 static_cast<double>(result.left[i]);
    }
  }
  CHECK(inside == outside);
  CHECK(inside != 0);
}

TEST_CASE("a share that is not the sum's own memory is refused where it must be") {
  run_as_threads(1, [&](Communicator& world) {
    const ProcessGrid grid(world, {});
    const TensorRegion region(grid, false);
    Owned<float> a({4}), b({4});
    CHECK_THROWS_AS(region.start_leave(a, b, kOutputShares), Error);
  });
}

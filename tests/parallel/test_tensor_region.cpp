#include <catch2/catch.hpp>
#include <vector>

#include "comm/thread_communicator.h"
#include "parallel/tensor_region.h"
#include "support/tensors.h"

using namespace megatron;
using namespace megatron::test;

namespace {

constexpr std::int64_t kRows = 8, kSamples = 2, kWidth = 3;
constexpr Shape kNoShape;

struct Memory {
  std::vector<std::byte> bytes = std::vector<std::byte>(1 << 14);
};

/// Runs on `ranks` tensor ranks; every rank's result by rank.
template <class Result, class Body>
std::vector<Result> on_ranks(int ranks, bool sequence_parallel, const Body& body) {
  std::vector<Result> results(static_cast<std::size_t>(ranks));
  run_as_threads(ranks, [&](Communicator& world) {
    const ProcessGrid grid(world, {.tensor = ranks});
    const TensorRegion region(grid, sequence_parallel);
    results[static_cast<std::size_t>(world.rank())] = body(region);
  });
  return results;
}

}  // namespace

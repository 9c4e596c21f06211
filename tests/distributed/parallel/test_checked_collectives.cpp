// The check of collectives: right calls pass with the same results, wrong ones are named by their line, whatever moves
// the tensors.
#include "distributed/parallel/checked_collectives.h"

#include <algorithm>
#include <cmath>
#include <memory>

#include "distributed/comm/meanings.h"
#include "distributed/parallel/checked_grid.h"
#include "distributed/parallel/staged_communicator.h"
#include "support/catch.h"
#include "support/check_on_rank.h"
#include "support/require_error.h"
#include "support/separate_backend.h"

using namespace megatron;
using namespace megatron::test;

namespace {

void require_found(const std::vector<std::string>& parts,
                   const std::function<void(const ProcessGrid& grid, int rank)>& body,
                   const CommunicationDefect& defect = {}) {
  std::vector<std::string> all = parts;
  all.insert(all.begin(), "tests/distributed/parallel/test_checked_collectives.cpp:");
  require_error(ErrorKind::numerics, all, [&] { on_checked_grid(body, defect); });
}

}  // namespace

TEST_CASE("checked collectives: right calls give what they give unchecked") {
  on_checked_grid([](const ProcessGrid& grid, int rank) {
    const Numbers zero(0), one(1);
    Numbers sum(rank % 2);
    grid.tensor().all_reduce(sum.tensor(), kOutputShares);
    for (std::size_t i = 0; i < sum.values.size(); ++i) CHECK_ON_RANK(sum.values[i] == zero.values[i] + one.values[i]);
    grid.tensor().expects(sum.tensor(), kStream);
    Numbers part(rank % 2), whole(0, 2 * kElements);
    grid.tensor().all_gather(part.tensor(), whole.tensor(), kSequenceRows);
    CHECK_ON_RANK(std::equal(zero.values.begin(), zero.values.end(), whole.values.begin()));
    CHECK_ON_RANK(std::equal(one.values.begin(), one.values.end(), whole.values.begin() + kElements));
    Numbers shares(rank, 2 * kElements), scattered(0);
    grid.tensor().reduce_scatter(shares.tensor(), scattered.tensor(), kOutputShares);
    Numbers sent(rank, 2 * kElements), received(0, 2 * kElements);
    grid.tensor().all_to_all(sent.tensor(), received.tensor(), kMatrixParts);
    double maximum = rank % 2;
    grid.tensor().all_reduce(Tensor(&maximum, {1}, DType::f64), kLogitMaxima);
    CHECK_ON_RANK(maximum == 1);
    std::vector<double> counts = {3, 4};  // equal on both data ranks, and right
    grid.control().all_reduce_values(counts, kTargetCounts);
    CHECK_ON_RANK(counts == std::vector<double>{6, 8});
  });
}

// As an embedding's rows whose words one rank has, which come again among the rows of another rank.
TEST_CASE("checked collectives: rows of one rank alone may come again") {
  on_checked_grid([](const ProcessGrid& grid, int) {
    const bool last = grid.tensor().rank() == 1;
    const auto scatter = [&](std::vector<Numbers> halves) {
      Numbers shares(0, 0), scattered(0);
      for (const Numbers& half : halves) {
        shares.values.insert(shares.values.end(), half.values.begin(), half.values.end());
      }
      grid.tensor().reduce_scatter(shares.tensor(), scattered.tensor(), kEmbeddingShares);
      return scattered.values;
    };
    Numbers none(0);
    std::fill(none.values.begin(), none.values.end(), 0.0f);
    const std::vector<float> first = last ? scatter({none, Numbers(7)}) : scatter({Numbers(5), none});
    CHECK_ON_RANK(first == Numbers(last ? 7 : 5).values);
    const std::vector<float> second = last ? scatter({Numbers(7), none}) : scatter({none, Numbers(3)});
    CHECK_ON_RANK(second == Numbers(last ? 3 : 7).values);
  });
}

TEST_CASE("checked collectives: a sum over another group is found") {
  require_found({"all-reduce of \"shares of a layer's output\" in group 'data'", "they are of group 'tensor'"},
                [](const ProcessGrid& grid, int rank) {
                  Numbers sum(rank);
                  grid.data().all_reduce(sum.tensor(), kOutputShares);
                });
}

TEST_CASE("checked collectives: a sum over a group of one rank is found") {
  require_found({"in group 'pipeline'", "they are of group 'tensor'"}, [](const ProcessGrid& grid, int rank) {
    Numbers sum(rank);
    grid.pipeline().all_reduce(sum.tensor(), kOutputShares);
  });
}

TEST_CASE("checked collectives: a second sum is found") {
  require_found({"it is a sum over these ranks already, made by"}, [](const ProcessGrid& grid, int rank) {
    Numbers sum(rank);
    grid.tensor().all_reduce(sum.tensor(), kOutputShares);
    grid.tensor().all_reduce(sum.tensor(), kOutputShares);
  });
}

TEST_CASE("checked collectives: a sum of parts of a sum is found") {
  require_found({"it is a sum over these ranks already, made by", "reduce-scatter"},
                [](const ProcessGrid& grid, int rank) {
                  Numbers shares(rank, 2 * kElements), part(0);
                  grid.tensor().reduce_scatter(shares.tensor(), part.tensor(), kOutputShares);
                  grid.tensor().all_reduce(part.tensor(), kOutputShares);
                });
}

TEST_CASE("checked collectives: a sum that was left out is found") {
  require_found({"use of \"rows that all tensor ranks have\"", "not the same bits as rank"},
                [](const ProcessGrid& grid, int rank) {
                  Numbers sum(rank);
                  grid.tensor().expects(sum.tensor(), kStream);
                });
}

TEST_CASE("checked collectives: a gather of what all ranks have is found") {
  require_found({"so these are no parts: each rank has the whole"}, [](const ProcessGrid& grid, int) {
    Numbers part(7), whole(0, 2 * kElements);
    grid.tensor().all_gather(part.tensor(), whole.tensor(), kSequenceRows);
  });
}

TEST_CASE("checked collectives: ranks that call differently are found") {
  require_found({"the ranks of a group communicate differently", "shares of a layer's output", "gates"},
                [](const ProcessGrid& grid, int rank) {
                  Numbers sum(rank);
                  if (rank % 2 == 0) {
                    grid.tensor().all_reduce(sum.tensor(), kOutputShares);
                  } else {
                    grid.tensor().all_reduce(sum.tensor(), kGateShares);
                  }
                });
}

TEST_CASE("checked collectives: a transport that does not add is found") {
  CommunicationDefect defect{.group = "tensor"};
  defect.forgets_all_reduce = [](const Tensor&, Reduce) { return true; };
  const auto body = [](const ProcessGrid& grid, int rank) {
    Numbers sum(rank);
    grid.tensor().all_reduce(sum.tensor(), kOutputShares);
  };
  require_found({"the result is not the sum of the ranks' shares"}, body, defect);
  defect = {.group = "tensor"};
  defect.after_sum = [](Tensor values, int ranks) {
    for (std::int64_t i = 0; i < values.elements(); ++i) values.as<float>()[i] /= static_cast<float>(ranks);
  };
  require_found({"the result is not the sum of the ranks' shares: off by"}, body, defect);
}

TEST_CASE("checked collectives: a transport that gathers wrongly is found") {
  CommunicationDefect defect{.group = "tensor", .swaps_gathered_parts = true};
  require_found(
      {"all-gather", "what arrived from rank"},
      [](const ProcessGrid& grid, int rank) {
        Numbers part(rank), whole(0, 2 * kElements);
        grid.tensor().all_gather(part.tensor(), whole.tensor(), kSequenceRows);
      },
      defect);
}

TEST_CASE("checked collectives: maxima that differ are found by the next call") {
  CommunicationDefect defect{.group = "tensor"};
  defect.forgets_all_reduce = [](const Tensor&, Reduce reduce) { return reduce == Reduce::maximum; };
  require_found(
      {"maxima of the logits", "afterwards the ranks have different bits"},
      [](const ProcessGrid& grid, int rank) {
        Numbers maximum(rank), sum(rank);
        grid.tensor().all_reduce(maximum.tensor(), kLogitMaxima);
        grid.tensor().all_reduce(sum.tensor(), kExponentials);
      },
      defect);
}

TEST_CASE("checked collectives: a message that is the one before is found") {
  CommunicationDefect defect{.group = "pipeline", .repeats_received_messages = true};
  const auto body = [&](Communicator& threads) {
    Onset onset;
    DefectiveCommunicator world(threads, defect, onset);
    const ProcessGrid grid(world, {.pipeline = 2});
    const Backend backend = make_cpu_backend();
    const CheckedCollectives checks(grid, *backend.device);
    for (int message = 0; message < 2; ++message) {
      Numbers numbers(message);
      if (world.rank() == 0) grid.pipeline().start_send(numbers.tensor(), 1, 0, kStageOutput).wait();
      if (world.rank() == 1) grid.pipeline().start_receive(numbers.tensor(), 0, 0, kStageOutput).wait();
    }
  };
  require_error(ErrorKind::numerics,
                {"receive of \"a stage's output\"", "what arrived from rank 0 is not what it sent"},
                [&] { run_as_threads(2, body); });
  defect = {};
  run_as_threads(2, body);
}

TEST_CASE("checked collectives: parts that are on their way read as NaN") {
  on_checked_grid([](const ProcessGrid& grid, int rank) {
    Numbers whole(5, 2 * kElements), own(rank);
    const std::int64_t first = rank % 2 * kElements;
    const Tensor part = whole.tensor().slice(0, first, kElements);
    std::copy(own.values.begin(), own.values.end(), whole.values.begin() + first);
    Pending gather = grid.tensor().start_all_gather(part, whole.tensor(), kSequenceRows);
    for (int i = 0; i < 2 * kElements; ++i) {
      const bool mine = i / kElements == rank % 2;
      CHECK_ON_RANK(std::isnan(whole.values[static_cast<std::size_t>(i)]) == !mine);
    }
    gather.wait();
    const Numbers other(rank % 2 == 0 ? rank + 1 : rank - 1);
    CHECK_ON_RANK(whole.values[static_cast<std::size_t>(kElements - first)] == other.values[0]);
  });
}

TEST_CASE("checked collectives: a broadcast on its way reads as NaN elsewhere") {
  on_checked_grid([](const ProcessGrid& grid, int rank) {
    Numbers weights(rank);
    const bool owner = grid.data().rank() == 1;
    Pending broadcast = grid.data().start_broadcast(weights.tensor(), 1, kOwnersWeights);
    for (const float value : weights.values) CHECK_ON_RANK(std::isnan(value) == !owner);
    broadcast.wait();
    CHECK_ON_RANK(weights.values == Numbers(rank % 2 + 2).values);
  });
}

TEST_CASE("checked collectives: a broadcast that does not arrive is found") {
  const CommunicationDefect defect{.group = "data", .forgets_broadcasts = true};
  require_found(
      {"broadcast of \"new weights of the rank that updates them\" in group 'data'", "what arrived from rank"},
      [](const ProcessGrid& grid, int rank) {
        Numbers weights(rank);
        grid.data().broadcast(weights.tensor(), 1, kOwnersWeights);
      },
      defect);
}

TEST_CASE("checked collectives: an exchange with wrong places is found") {
  const CommunicationDefect defect{.group = "tensor", .swaps_exchanged_parts = true};
  require_found(
      {"all-to-all of \"parts of matrices\"", "what arrived from rank"},
      [](const ProcessGrid& grid, int rank) {
        Numbers sent(rank, 2 * kElements), received(0, 2 * kElements);
        grid.tensor().all_to_all(sent.tensor(), received.tensor(), kMatrixParts);
      },
      defect);
}

TEST_CASE("checked collectives: counts of each rank's own are no common counts") {
  require_found({"counts that the loss is a mean over", "not the same bits as rank 0"},
                [](const ProcessGrid& grid, int rank) {
                  const double count = 10 + grid.data().rank();
                  grid.world().expects(ConstTensor(&count, {1}, DType::f64), kLossCounts);
                  CHECK(rank >= 0);
                });
}

TEST_CASE("checked collectives: a grid is unchecked when its check has ended") {
  run_as_threads(2, [](Communicator& world) {
    const ProcessGrid grid(world, {.tensor = 2});
    {
      const Backend backend = make_cpu_backend();
      const CheckedCollectives checks(grid, *backend.device);
      CHECK_ON_RANK(grid.tensor().checked());
    }
    CHECK_ON_RANK(!grid.tensor().checked());
    Numbers sum(world.rank());
    grid.tensor().all_reduce(sum.tensor(), kOutputShares);
    grid.tensor().all_reduce(sum.tensor(), kOutputShares);  // wrong, and not seen
  });
}

TEST_CASE("checked collectives: a device's tensors are checked where they are") {
  const auto body = [](bool twice) {
    run_as_threads(2, [&](Communicator& world) {
      const Backend backend = make_separate_backend();
      Device& device = *backend.device;
      StagedCommunicator transport(world, device);
      const ProcessGrid grid(world, {.tensor = 2}, &transport);
      const CheckedCollectives checks(grid, device);
      const Buffer memory(device, 3 * kElements * sizeof(float));
      const Tensor part = memory.tensor({kElements}, DType::f32);
      const Tensor whole = memory.tensor({2 * kElements}, DType::f32, kElements * sizeof(float));
      const Numbers own(world.rank());
      device.copy_to_device(part.data(), own.values.data(), part.bytes());
      grid.tensor().all_gather(part, whole, kSequenceRows);
      Numbers seen(0, 2 * kElements);
      device.copy_to_host(seen.values.data(), whole.data(), whole.bytes());
      CHECK_ON_RANK(std::equal(own.values.begin(), own.values.end(), seen.values.begin() + world.rank() * kElements));
      CHECK_ON_RANK(seen.values[0] == Numbers(0).values[0]);
      CHECK_ON_RANK(seen.values[kElements] == Numbers(1).values[0]);
      grid.tensor().all_reduce(part, kOutputShares);
      if (twice) grid.tensor().all_reduce(part, kOutputShares);
    });
  };
  body(false);
  require_error(ErrorKind::numerics, {"it is a sum over these ranks already"}, [&] { body(true); });
}

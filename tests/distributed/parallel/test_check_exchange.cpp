// How a check's ranks tell each other what they see: waits that hold nothing up, the order of results and of messages,
// how much is sent, the end of a check.
#include <atomic>
#include <cstring>
#include <limits>
#include <utility>

#include "distributed/comm/meanings.h"
#include "distributed/parallel/checked_grid.h"
#include "distributed/parallel/staged_communicator.h"
#include "distributed/parallel/tensor_print.h"
#include "support/catch.h"
#include "support/check_on_rank.h"
#include "support/require_error.h"
#include "support/separate_backend.h"

using namespace megatron;
using namespace megatron::test;

namespace {

/// Counts what this rank receives in the gathers and exchanges of checks.
class CheckTraffic final : public CommunicatorDecorator {
 public:
  CheckTraffic(Communicator& inner, std::size_t& bytes) : CommunicatorDecorator(inner), bytes_(bytes) {}
  CheckTraffic(std::unique_ptr<Communicator> inner, std::size_t& bytes)
      : CommunicatorDecorator(std::move(inner)), bytes_(bytes) {}

 private:
  void count(Tensor received) {
    if (name().starts_with("check of")) bytes_ += received.bytes();
  }
  std::uint64_t do_all_gather(ConstTensor part, Tensor whole) override {
    count(whole);
    return CommunicatorDecorator::do_all_gather(part, whole);
  }
  std::uint64_t do_all_to_all(ConstTensor send, Tensor receive) override {
    count(receive);
    return CommunicatorDecorator::do_all_to_all(send, receive);
  }
  std::unique_ptr<Communicator> around(std::unique_ptr<Communicator> inner) const override {
    return std::make_unique<CheckTraffic>(std::move(inner), bytes_);
  }

  std::size_t& bytes_;
};

/// Bytes that a rank of `ranks` receives for the checks of a sum, a scatter, a gather and an exchange.
std::size_t received_bytes(int ranks) {
  std::atomic<std::size_t> most = 0;
  run_as_threads(ranks, [&](Communicator& threads) {
    std::size_t bytes = 0;
    CheckTraffic world(threads, bytes);
    const ProcessGrid grid(world, {.tensor = ranks});
    const Backend backend = make_cpu_backend();
    const CheckedCollectives checks(grid, *backend.device);
    const std::size_t before = bytes;
    Numbers part(world.rank()), shares(world.rank() + 100, ranks * kElements), other(0, ranks * kElements);
    grid.tensor().reduce_scatter(shares.tensor(), other.tensor().slice(0, 0, kElements), kOutputShares);
    grid.tensor().all_to_all(shares.tensor(), other.tensor(), kMatrixParts);
    grid.tensor().all_gather(part.tensor(), other.tensor(), kSequenceRows);
    grid.tensor().all_reduce(part.tensor(), kOutputShares);
    if (world.rank() == 0) most = bytes - before;
  });
  return most;
}

CommunicationDefect without_maxima() {
  CommunicationDefect defect{.group = "tensor"};
  defect.forgets_all_reduce = [](const Tensor&, Reduce reduce) { return reduce == Reduce::maximum; };
  return defect;
}

}  // namespace

// Rank 0 waits in a check of the host's numbers while rank 1 waits for its message, which is copied out of the device
// and sent on while rank 0 waits.
TEST_CASE("check exchange: waiting moves staged messages along") {
  run_as_threads(
      2,
      [](Communicator& world) {
        const Backend backend = make_separate_backend();
        Device& device = *backend.device;
        StagedCommunicator transport(world, device);
        const ProcessGrid grid(world, {.pipeline = 2}, &transport);
        CheckedCollectives checks(grid, device);
        const Buffer memory(device, kElements * sizeof(float));
        const Tensor values = memory.tensor({kElements}, DType::f32);
        Numbers numbers(5);
        const double count = 10;
        const auto expect_counts = [&] { grid.world().expects(ConstTensor(&count, {1}, DType::f64), kLossCounts); };
        if (world.rank() == 0) {
          device.copy_to_device(values.data(), numbers.values.data(), values.bytes());
          Pending sent = grid.pipeline().start_send(values, 1, 0, kStageOutput);
          expect_counts();
          sent.wait();
        } else {
          grid.pipeline().start_receive(values, 0, 0, kStageOutput).wait();
          expect_counts();
        }
        Numbers seen(0);
        device.copy_to_host(seen.values.data(), values.data(), values.bytes());
        CHECK_ON_RANK(seen.values == numbers.values);
        checks.finish();
      },
      std::chrono::seconds(10));
}

TEST_CASE("check exchange: a rank receives in proportion to the ranks") {
  const std::size_t two = received_bytes(2), eight = received_bytes(8);
  CHECK(two > 0);
  CHECK(eight == 4 * two);
}

TEST_CASE("check exchange: messages may be waited for in another order") {
  on_checked_grid({.pipeline = 2}, [](const ProcessGrid& grid, int rank) {
    Numbers first(rank == 0 ? 1 : 8), second(rank == 0 ? 2 : 9);
    if (rank == 0) {
      grid.pipeline().start_send(first.tensor(), 1, 0, kStageOutput).wait();
      grid.pipeline().start_send(second.tensor(), 1, 0, kStageOutput).wait();
    } else {
      Pending early = grid.pipeline().start_receive(first.tensor(), 0, 0, kStageOutput);
      Pending late = grid.pipeline().start_receive(second.tensor(), 0, 0, kStageOutput);
      late.wait();
      early.wait();
    }
    CHECK_ON_RANK(first.values == Numbers(1).values);
    CHECK_ON_RANK(second.values == Numbers(2).values);
  });
}

TEST_CASE("check exchange: ranks may wait for sums in different orders") {
  on_checked_grid([](const ProcessGrid& grid, int rank) {
    Numbers a(rank), b(rank + 10), c(rank + 20);
    Pending first = grid.tensor().start_all_reduce(a.tensor(), kOutputShares);
    Pending second = grid.tensor().start_all_reduce(b.tensor(), kGateShares);
    if (rank % 2 == 0) first.wait();
    second.wait();
    first.wait();
    grid.tensor().all_reduce(c.tensor(), kOutputShares);
  });
}

TEST_CASE("check exchange: of several results the wrong one is named") {
  const auto body = [](const ProcessGrid& grid, int rank) {
    Numbers maximum(rank), sum(rank + 10), last(rank + 20);
    Pending first = grid.tensor().start_all_reduce(maximum.tensor(), kLogitMaxima);
    Pending second = grid.tensor().start_all_reduce(sum.tensor(), kExponentials);
    first.wait();
    second.wait();
    grid.tensor().all_reduce(last.tensor(), kOutputShares);
  };
  require_error(ErrorKind::numerics, {"all-reduce of \"maxima of the logits", "afterwards the ranks have different"},
                [&] { on_checked_grid(body, without_maxima()); });
  on_checked_grid(body);
}

TEST_CASE("check exchange: the last result of a group is compared at the end") {
  const auto body = [](const ProcessGrid& grid, int rank) {
    Numbers maximum(rank);
    grid.tensor().all_reduce(maximum.tensor(), kLogitMaxima);
  };
  require_error(ErrorKind::numerics, {"all-reduce of \"maxima of the logits", "afterwards the ranks have different"},
                [&] { on_checked_grid(body, without_maxima()); });
  on_checked_grid(body);
}

TEST_CASE("check exchange: a rank that ends while others sum is found") {
  require_error(ErrorKind::numerics, {"the ranks of a group communicate differently", "the end of the check"}, [] {
    on_checked_grid({.tensor = 2}, [](const ProcessGrid& grid, int rank) {
      Numbers sum(rank);
      if (rank == 1) grid.tensor().all_reduce(sum.tensor(), kOutputShares);
    });
  });
}

TEST_CASE("check exchange: a check stays while its gathers are in flight") {
  on_checked_grid({.tensor = 2}, [](const ProcessGrid& grid, int rank) {
    Numbers part(rank), whole(0, 2 * kElements);
    Pending gather = grid.tensor().start_all_gather(part.tensor(), whole.tensor(), kSequenceRows);
    std::string error;
    try {
      grid.tensor().set_check(nullptr);
    } catch (const Error& refused) {
      error = refused.what();
    }
    CHECK_ON_RANK(error.find("check changes while calls") != std::string::npos);
    CHECK_ON_RANK(error.find("tensor") != std::string::npos);
    gather.wait();
    CHECK_ON_RANK(whole.values[0] == Numbers(0).values[0]);
    CHECK_ON_RANK(whole.values[kElements] == Numbers(1).values[0]);
  });
}

TEST_CASE("tensor print: any NaN is one NaN") {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  std::vector<float> a = {1, nan, 3}, b = {1, -nan, 3}, c = {1, 3, nan};
  std::uint32_t payload = 0x7FC00123;
  std::vector<float> d = a;
  std::memcpy(&d[1], &payload, sizeof payload);
  const auto bits = [](const std::vector<float>& values) {
    return prints_of(reinterpret_cast<const std::byte*>(values.data()), DType::f32, 3, 1)[0].bits;
  };
  CHECK(bits(a) == bits(b));
  CHECK(bits(a) == bits(d));
  CHECK(bits(a) != bits(c));
  const std::vector<std::uint16_t> x = {0x7FC0, 0x3F80}, y = {0xFFC1, 0x3F80}, z = {0x7F80, 0x3F80};
  const auto half_bits = [](const std::vector<std::uint16_t>& values) {
    return prints_of(reinterpret_cast<const std::byte*>(values.data()), DType::bf16, 2, 1)[0].bits;
  };
  CHECK(half_bits(x) == half_bits(y));
  CHECK(half_bits(x) != half_bits(z));  // infinity
}

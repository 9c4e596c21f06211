// NCCL on one GPU: a lane of one rank, through which every call is a copy; and two ranks, where NCCL lets them share a
// GPU (2.30 and later, with NCCL_MULTI_RANK_GPU_ENABLE=1). Otherwise several ranks need several GPUs.
#include "backend/ops/backends.h"
#include "backend/ops/ops.h"
#include "base/core/philox.h"
#include "cuda/nccl_communicator.h"
#include "cuda/nccl_lane.h"
#include "distributed/comm/thread_communicator.h"
#include "support/catch.h"

using namespace megatron;

namespace {

constexpr std::int64_t kElements = 100003;

struct Lane {
  Lane() : backend(make_cuda_backend(0)), device(dynamic_cast<CudaDevice&>(*backend.device)), lane(device, "test", 4) {
    ncclUniqueId id;
    REQUIRE(ncclGetUniqueId(&id) == ncclSuccess);
    first = lane.push(call(Verb::all_reduce));  // before it is connected
    CHECK_FALSE(lane.posted(first));
    lane.connect(id, 1, 0);
  }
  NcclCall call(Verb verb) {
    return {.verb = verb,
            .input = x.data(),
            .output = y.data(),
            .elements = kElements,
            .type = DType::f32,
            .after = device.mark()};
  }
  void finish(std::uint64_t number) {
    while (!lane.posted(number)) lane.advance();
    lane.order_operations_after(number);
  }
  Backend backend;
  CudaDevice& device;
  Buffer from{device, kElements * sizeof(float)}, to{device, kElements * sizeof(float)};
  Tensor x = from.tensor({kElements}, DType::f32), y = to.tensor({kElements}, DType::f32);
  NcclLane lane;
  std::uint64_t first = 0;
};

}  // namespace

TEST_CASE("NCCL lane: calls run after earlier operations and before waiting ones") {
  Lane l;
  l.finish(l.first);
  for (const Verb verb :
       {Verb::all_reduce, Verb::all_gather, Verb::reduce_scatter, Verb::broadcast, Verb::all_to_all}) {
    for (int round = 1; round <= 300; ++round) {  // more than a queue has events
      l.backend.ops->fill(l.x, round);
      l.backend.ops->fill(l.y, -1);
      const std::uint64_t call = l.lane.push(l.call(verb));
      l.finish(call);
      l.backend.ops->fill(l.x, -2);
      if (round % 100 != 0) continue;
      std::vector<float> result(kElements);
      l.device.copy_to_host(result.data(), l.y.data(), l.y.bytes());
      CHECK(result == std::vector<float>(kElements, static_cast<float>(round)));
      CHECK(l.lane.complete(call));
    }
  }
}

TEST_CASE("a lane that is broken off refuses further calls") {
  Lane l;
  l.finish(l.first);
  l.lane.abort();
  CHECK_THROWS_WITH(l.lane.push(l.call(Verb::broadcast)), Contains("after a failure"));
}

TEST_CASE("a group of one rank needs no NCCL") {
  run_as_threads(1, [](Communicator& host) {
    Backend backend = make_cuda_backend(0);
    const auto world = make_nccl_communicator(host, *backend.device);
    Buffer from(*backend.device, 4000), to(*backend.device, 4000);
    const Tensor x = from.tensor({1000}, DType::f32), y = to.tensor({1000}, DType::f32);
    backend.ops->fill(x, 5);
    world->all_gather(x, y, kPassedOn);
    world->all_reduce(y, kPassedOn);
    std::vector<float> result(1000);
    backend.device->copy_to_host(result.data(), y.data(), y.bytes());
    CHECK(result == std::vector<float>(1000, 5));
    CHECK(world->all_reduce_value(2, kPassedOn) == 2);
    CHECK(world->split(0, 0, "part")->size() == 1);
  });
}

TEST_CASE("two ranks on one GPU: collectives and messages", "[.][two-ranks]") {
  bool refused = false;
  run_as_threads(2, [&](Communicator& host) {
    Backend backend = make_cuda_backend(0);
    std::unique_ptr<Communicator> world;
    try {
      world = make_nccl_communicator(host, *backend.device);
    } catch (const Error& error) {
      if (std::string_view(error.what()).find("Duplicate GPU") == std::string_view::npos) throw;
      if (host.rank() == 0) refused = true;
      return;
    }
    const float own = static_cast<float>(host.rank() + 1), other = 3 - own;
    Buffer from(*backend.device, 4000), to(*backend.device, 4000);
    const Tensor x = from.tensor({1000}, DType::f32), y = to.tensor({1000}, DType::f32);
    const auto expect_halves = [&](float first, float second, const char* what) {
      std::vector<float> wanted(500, first), result(1000);
      wanted.resize(1000, second);
      backend.device->copy_to_host(result.data(), y.data(), y.bytes());
      if (result != wanted) throw Error(ErrorKind::internal, what);
    };
    const auto begin = [&] {
      backend.ops->fill(x, own);
      backend.ops->fill(y, -1);
    };
    begin();
    backend.ops->copy(x, y);
    world->all_reduce(y, kPassedOn);
    expect_halves(3, 3, "all-reduce");
    begin();
    world->all_gather(x.slice(0, 0, 500), y, kPassedOn);
    expect_halves(1, 2, "all-gather");
    begin();
    world->reduce_scatter(x, y.slice(0, 0, 500), kPassedOn);
    expect_halves(3, -1, "reduce-scatter");
    begin();
    world->all_to_all(x, y, kPassedOn);
    expect_halves(1, 2, "all-to-all");
    begin();
    Pending received = world->start_receive(y, 1 - host.rank(), 0, kPassedOn);
    world->start_send(x, 1 - host.rank(), 0, kPassedOn).wait();
    received.wait();
    expect_halves(other, other, "messages both ways");
  });
  if (refused) skip_test("NCCL refuses two ranks on one GPU");
}

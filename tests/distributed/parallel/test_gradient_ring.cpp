// GradientRing: sums of layers' gradients of several micro-batches, which every copy has its part of.
#include "distributed/parallel/gradient_ring.h"
#include "distributed/parallel/ring_parameters.h"

#include <fmt/format.h>

#include <algorithm>
#include <mutex>

#include "backend/ops/backends.h"
#include "distributed/comm/thread_communicator.h"
#include "support/catch.h"

using namespace megatron;
using namespace megatron::test;

namespace {

constexpr int kLayers = 5, kMicroBatches = 3;

/// Small whole numbers: their sums are exact in any order.
float gradient_of(int rank, int micro_batch, int parameter, std::int64_t element) {
  return static_cast<float>((rank * 31 + micro_batch * 17 + parameter * 7 + element * 3) % 101 - 50);
}

}  // namespace

TEST_CASE("gradient ring: each copy has the sums of its part of all layers") {
  const GridShape shape = GENERATE(GridShape{.data = 2}, GridShape{.data = 4, .expert = 2}, GridShape{.data = 3},
                                   GridShape{.context = 2, .data = 2}, GridShape{.data = 2, .expert = 2});
  CAPTURE(shape.context, shape.data, shape.expert);
  std::mutex mutex;
  std::vector<std::string> wrong;
  std::int64_t compared = 0;
  run_as_threads(shape.ranks(), [&](Communicator& world) {
    const ProcessGrid grid(world, shape);
    Backend backend = make_cpu_backend();
    ParameterStore store;
    declare_ring(store, kLayers);
    Shards shards = shards_of(shape);
    shards.gradients = true;
    store.allocate(*backend.device, DType::f32, shards, 40);
    backend.ops->fill(store.gradients(), 0);
    GradientRing ring(grid, store);
    for (int micro_batch = 0; micro_batch < kMicroBatches; ++micro_batch) {
      for (int layer = kLayers; layer-- > 0;) {
        const int first = 1 + 2 * layer;
        ring.begin(first, *backend.ops);
        for (int i = first; i < first + 2; ++i) {
          const Parameter& parameter = store.at(i);
          for (std::int64_t k = 0; k < parameter.elements(); ++k) {
            parameter.gradient.as<float>()[k] += gradient_of(world.rank(), micro_batch, i, k);
          }
        }
        ring.end(first);
      }
    }
    ring.finish(*backend.ops);
    const std::lock_guard lock(mutex);
    for (const Parameter& parameter : store.all()) {
      if (parameter.unit == kNone) continue;
      for (const FlatRange& part : ParameterStore::parts_in(parameter, store.owned_by(shard_at(grid.at(), shape)))) {
        for (std::int64_t k = 0; k < part.count; ++k, ++compared) {
          float want = 0;
          for (int rank = 0; rank < shape.ranks(); ++rank) {
            const GridCoordinates at = coordinates_of(rank, shape);
            const bool same_experts = at.data % shape.expert == grid.at().data % shape.expert;
            if (parameter.copies == CopyGroup::experts && !same_experts) continue;
            for (int m = 0; m < kMicroBatches; ++m) {
              want += gradient_of(rank, m, parameter.index, part.first - parameter.first + k);
            }
          }
          const float got = store.gradients_of(part).as<float>()[k];
          if (got != want) wrong.push_back(fmt::format("{} [{}]: {} not {}", parameter.name, k, got, want));
        }
      }
    }
  });
  CHECK(wrong == std::vector<std::string>{});
  CHECK(compared > 0);
}

TEST_CASE("gradient ring: instead of sums it shows each layer's gradients") {
  run_as_threads(2, [](Communicator& world) {
    const ProcessGrid grid(world, {.data = 2});
    Backend backend = make_cpu_backend();
    ParameterStore store;
    declare_ring(store, kLayers);
    store.allocate(*backend.device, DType::f32, {2, 2, true}, 40);
    GradientRing ring(grid, store);
    std::vector<int> seen;
    ring.look_instead([&](const DividedLayer& layer) { seen.push_back(layer.first_parameter); });
    for (const int first : {9, 7, 5}) {
      ring.begin(first, *backend.ops);
      ring.end(first);
    }
    internal_check(seen == std::vector<int>{9, 7, 5}, "other layers were shown");
  });
}

TEST_CASE("gradient ring: consecutive layers have different buffers") {
  ParameterStore store;
  declare_ring(store, kLayers);
  store.allocate_sizing(DType::f32, {4, 2, true}, 40);
  const std::vector<DividedLayer>& layers = store.layers();
  REQUIRE(layers.size() == std::size_t{kLayers});
  std::int64_t largest = 0, sums = 0;
  for (const Bucket& bucket : store.buckets()) {
    sums += bucket.unit == kNone ? bucket.count : bucket.count / (bucket.copies == CopyGroup::experts ? 2 : 4);
  }
  for (const DividedLayer& layer : layers) largest = std::max(largest, layer.count);
  for (std::size_t i = 0; i < layers.size(); ++i)
    CHECK(layers[i].whole == sums + static_cast<std::int64_t>(i % 2) * largest);
  CHECK(store.gradients().elements() == sums + 2 * largest);
}

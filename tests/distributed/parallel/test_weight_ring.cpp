// WeightRing: a pass finds the values of each layer as its copies keep them in parts. How often layers are gathered is
// in tests/training/step/test_divided_gradients.cpp.
#include "distributed/parallel/ring_parameters.h"
#include "distributed/parallel/weight_ring.h"

#include <fmt/format.h>

#include <mutex>

#include "backend/ops/backends.h"
#include "distributed/comm/thread_communicator.h"
#include "distributed/parallel/parameter_all_gather.h"
#include "support/catch.h"

using namespace megatron;
using namespace megatron::test;

namespace {

float value_of(std::int64_t step, int parameter, std::int64_t element) {
  return static_cast<float>(1000 * step + 100 * parameter + element);
}

/// As an optimizer does: sets the values that this rank owns, and says so.
void update(const ParameterStore& store, ParameterAllGather& gathers, std::int64_t step) {
  const std::vector<FlatRange> owned = store.owned_by(gathers.shard());
  for (std::size_t i = 0; i < owned.size(); ++i) {
    for (const Parameter& parameter : store.all()) {
      for (const FlatRange& part : ParameterStore::parts_in(parameter, {owned[i]})) {
        float* const values = store.values_of(part).as<float>();
        for (std::int64_t k = 0; k < part.count; ++k) {
          values[k] = value_of(step, parameter.index, part.first - parameter.first + k);
        }
      }
    }
    gathers.start(i);
  }
}

}  // namespace

TEST_CASE("weight ring: every pass finds the values of its layer's last update") {
  const GridShape shape = GENERATE(GridShape{.data = 2}, GridShape{.data = 3}, GridShape{.data = 4, .expert = 2},
                                   GridShape{.data = 2, .expert = 2}, GridShape{.context = 2, .data = 2});
  const int layers = GENERATE(1, 2, 3, 5);
  const int micro_batches = GENERATE(1, 3);
  CAPTURE(shape.context, shape.data, shape.expert, layers, micro_batches);
  std::mutex mutex;
  std::vector<std::string> wrong;
  run_as_threads(shape.ranks(), [&](Communicator& world) {
    const ProcessGrid grid(world, shape);
    Backend backend = make_cpu_backend();
    ParameterStore store;
    declare_ring(store, layers);
    Shards shards = shards_of(shape);
    shards.gradients = shards.weights = true;
    store.allocate(*backend.device, DType::f32, shards, 40);
    backend.ops->fill(store.values(), -1);
    ParameterAllGather gathers(grid, store);
    const auto look = [&](int parameter, std::int64_t step) {
      const Parameter& read = store.at(parameter);
      for (std::int64_t k = 0; k < read.elements(); ++k) {
        const float want = value_of(step, parameter, k), got = read.value.as<float>()[k];
        const std::lock_guard lock(mutex);
        if (got != want) wrong.push_back(fmt::format("step {}: {} [{}]: {}, not {}", step, read.name, k, got, want));
      }
    };
    const auto forward = [&](std::int64_t step) {
      gathers.wait_for(0);
      look(0, step);
      for (int i = 1; i < 1 + 2 * layers; i += 2) {
        gathers.wait_for(i + 1);
        for (const int parameter : {i, i + 1}) look(parameter, step);
      }
      gathers.wait_for(1 + 2 * layers);
      look(1 + 2 * layers, step);
    };
    const auto backward = [&](std::int64_t step) {
      for (int i = 2 * layers - 1; i > 0; i -= 2) {
        gathers.wait_for_backward(i);
        for (const int parameter : {i, i + 1}) look(parameter, step);
      }
    };
    for (std::int64_t step = 1; step <= 3; ++step) {
      gathers.finish();  // as an update does first
      update(store, gathers, step);
      if (step == 2) gathers.finish();  // as a checkpoint does between steps
      for (int micro_batch = 0; micro_batch < micro_batches; ++micro_batch) {
        forward(step);
        if (step == 3) forward(step);  // as gpipe plays them
        backward(step);
      }
      if (step == 2) forward(step);  // an evaluation
    }
  });
  CHECK(wrong == std::vector<std::string>{});
}

TEST_CASE("weight ring: a rank keeps its part of each layer and two whole ones") {
  ParameterStore store;
  declare_ring(store, 5);
  store.allocate_sizing(DType::bf16, {4, 2, true, true}, 40);
  CHECK(store.values().dtype() == DType::bf16);
  CHECK(store.values().elements() == store.gradients().elements());
  CHECK(store.values().elements() < store.flat_elements());
  CHECK(store.at(1).value.data() == store.at(5).value.data());  // layers 0 and 2
  CHECK(store.at(1).value.data() != store.at(3).value.data());
}

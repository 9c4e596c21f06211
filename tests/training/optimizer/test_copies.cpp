// The optimizer over context and expert axes: ranks with the same parameters and parts of their gradients, whether
// other rows or other samples make the parts, update as one rank does that has the whole gradient.
#include <map>
#include <mutex>

#include "backend/ops/backends.h"
#include "distributed/comm/thread_communicator.h"
#include "distributed/parallel/gradient_reducer.h"
#include "support/catch.h"
#include "training/optimizer/optimizer_support.h"

using namespace megatron;
using namespace megatron::test;

namespace {

struct PlacedWeight {
  const char* name;
  Shape shape;
  std::vector<int> stages;  // that hold it; several: tied
  int expert = kNone;       // the rank that holds it, of those that share experts out
};

const std::vector<PlacedWeight> kPlacedWeights = {
    {"table", {11, 3}, {0, 1}},       {"matrix", {35, 3}, {0}},         {"bias", {7}, {0}},
    {"expert 0", {5, 7}, {0}, 0},     {"expert 0's bias", {7}, {0}, 0}, {"expert 1", {5, 7}, {0}, 1},
    {"expert 1's bias", {7}, {0}, 1}, {"wide", {3, 130}, {1}},          {"last norm", {13}, {1}}};

bool holds(const PlacedWeight& weight, int stage) {
  return std::find(weight.stages.begin(), weight.stages.end(), stage) != weight.stages.end();
}

/// Whether a data rank has it, where this number of ranks share experts out.
bool holds_expert(const PlacedWeight& weight, int data, int expert) {
  return weight.expert == kNone || weight.expert % expert == data % expert;
}

/// The part of a gradient that one copy on one stage computes, hand-made.
Owned<float> part_of_gradient(const PlacedWeight& weight, int stage, int copy, int step) {
  const auto seed = static_cast<std::uint64_t>(1000 * step + 10 * copy + stage);
  return random_tensor({weight.shape.elements()}, seed ^ hash_name(weight.name), 0.3);
}

void declare(ParameterStore& store, const ProcessGrid& grid, const PlacedWeight& weight) {
  Parameter parameter = parameter_of(weight.name, weight.shape, weight.shape.rank() == 2);
  parameter.initialization.deviation = weight.shape.rank() == 2 ? 1 : 0;
  if (weight.expert != kNone) parameter.copies = CopyGroup::experts;
  const int index = store.declare(std::move(parameter));
  if (weight.stages.size() > 1 && grid.ties() > 0) store.mark_tied(index, 0, grid.tie(0).rank() == 0);
}

struct TrainedCopies {
  std::map<std::string, std::vector<float>> values;
  std::vector<double> norms;
};

constexpr int kSteps = 3;

/// On one rank, whose gradients are the sums of the parts in the order of the ranks: copies, then stages.
TrainedCopies train_alone(const GridShape& shape, DType type) {
  const int stages = shape.pipeline;
  TrainedCopies result;
  run_as_threads(1, [&](Communicator& world) {
    const ProcessGrid grid(world, {});
    Backend backend = make_cpu_backend();
    ParameterStore store;
    for (const PlacedWeight& weight : kPlacedWeights) {
      if (holds(weight, 0) || stages > 1) declare(store, grid, weight);
    }
    store.allocate(*backend.device, type);
    Optimizer optimizer(store, kSettings, *backend.device, *backend.ops);
    optimizer.initialize(3);
    for (int step = 1; step <= kSteps; ++step) {
      backend.ops->fill(store.gradients(), 0);
      for (const PlacedWeight& weight : kPlacedWeights) {
        for (int stage = 0; stage < stages; ++stage) {
          if (!holds(weight, stage)) continue;
          const auto parameter = std::find_if(store.all().begin(), store.all().end(),
                                              [&](const Parameter& one) { return one.name == weight.name; });
          Owned<float> sum({weight.shape.elements()});
          for (int copy = 0; copy < shape.copies(); ++copy) {
            if (!holds_expert(weight, copy / shape.context, shape.expert)) continue;
            backend.ops->add(part_of_gradient(weight, stage, copy, step), sum.tensor());
          }
          backend.ops->add(sum, parameter->gradient.view({weight.shape.elements()}));
        }
      }
      result.norms.push_back(update(optimizer, backend, grid, kUpdate).gradient_norm);
    }
    Owned<float> widened({store.flat_elements()});
    backend.ops->copy(store.values(), widened.tensor());
    for (const Parameter& parameter : store.all()) {
      const float* values = widened.values().data() + parameter.first;
      result.values[parameter.name] = {values, values + parameter.elements()};
    }
  });
  return result;
}

/// On a grid, each rank with its part of the gradients.
TrainedCopies train_on(const GridShape& shape, DType type, bool distributed) {
  TrainedCopies result;
  std::mutex mutex;
  run_as_threads(shape.ranks(), [&](Communicator& world) {
    const ProcessGrid grid(world, shape);
    Backend backend = make_cpu_backend();
    ParameterStore store;
    std::vector<PlacedWeight> here;
    for (const PlacedWeight& weight : kPlacedWeights) {
      if (holds(weight, grid.at().pipeline) && holds_expert(weight, grid.at().data, shape.expert)) {
        here.push_back(weight);
      }
    }
    for (const PlacedWeight& weight : here) declare(store, grid, weight);
    store.allocate(*backend.device, type, distributed ? shards_of(shape) : Shards{}, 100);
    GradientReducer reducer(grid, store);
    ParameterAllGather gathers(grid, store);
    Optimizer optimizer(store, kSettings, *backend.device, *backend.ops, &gathers);
    optimizer.initialize(3);
    const Buffer memory(*backend.device, 4096);
    Arena scratch("scratch", memory);
    std::vector<double> norms;
    const int copy = copy_rank(CopyGroup::dense, grid.at(), shape);
    for (int step = 1; step <= kSteps; ++step) {
      backend.ops->fill(store.gradients(), 0);
      for (std::size_t i = 0; i < here.size(); ++i) {
        backend.ops->copy(part_of_gradient(here[i], grid.at().pipeline, copy, step),
                          store.all()[i].gradient.view({here[i].shape.elements()}));
      }
      reducer.finish(*backend.ops, scratch);
      norms.push_back(update(optimizer, backend, grid, kUpdate).gradient_norm);
    }
    gathers.finish();
    Owned<float> widened({store.flat_elements()});
    backend.ops->copy(store.values(), widened.tensor());
    const std::lock_guard lock(mutex);
    if (result.norms.empty()) result.norms = norms;
    CHECK(result.norms == norms);
    for (const Parameter& parameter : store.all()) {
      const float* values = widened.values().data() + parameter.first;
      const std::vector<float> mine(values, values + parameter.elements());
      CHECK(result.values.try_emplace(parameter.name, mine).first->second == mine);  // the same on all that hold it
    }
  });
  return result;
}

}  // namespace

TEST_CASE("optimizer: context and data and expert ranks update as one rank") {
  const GridShape shape = GENERATE(GridShape{.context = 2, .data = 2}, GridShape{.context = 4}, GridShape{.data = 4},
                                   GridShape{.context = 2, .data = 2, .pipeline = 2, .ties = {{0, 1}}},
                                   GridShape{.data = 2, .expert = 2}, GridShape{.data = 4, .expert = 2},
                                   GridShape{.context = 2, .data = 2, .pipeline = 2, .expert = 2, .ties = {{0, 1}}});
  const DType type = GENERATE(DType::f32, DType::bf16);
  const bool distributed = GENERATE(false, true);
  CAPTURE(shape.context, shape.data, shape.pipeline, shape.expert, name_of(type), distributed);
  const TrainedCopies alone = train_alone(shape, type);
  const TrainedCopies together = train_on(shape, type, distributed);
  CHECK(together.values == alone.values);
  CHECK(together.norms == alone.norms);
  REQUIRE(alone.norms.size() == kSteps);
  CHECK(alone.norms[0] > 1);  // clipped: a wrong norm would show in the values
}

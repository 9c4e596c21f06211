// Muon on grids of ranks: parts of matrices, by rows and columns, shared and repeated, of experts and in shards, are
// updated in the bits of one rank that has all of them.
#include <algorithm>
#include <mutex>
#include <numeric>
#include <tuple>

#include "backend/ops/backends.h"
#include "base/core/philox.h"
#include "config/rules/resolve.h"
#include "distributed/comm/counting_communicator.h"
#include "distributed/comm/thread_communicator.h"
#include "models/families/family.h"
#include "models/layers/parameter_builder.h"
#include "support/boxes.h"
#include "support/catch.h"
#include "support/communicator_cases.h"
#include "support/model_sizes.h"
#include "support/tensors.h"
#include "training/optimizer/newton_schulz.h"
#include "training/optimizer/update_step.h"
#include "training/step/grid.h"
#include "training/step/memory_plan.h"

using namespace megatron;
using namespace megatron::test;

namespace {

constexpr std::int64_t kHidden = 8, kGroups = 2;
constexpr int kExperts = 2, kMatrixSteps = 4;

void declare(ParameterStore& store, const ProcessGrid& grid, const TensorRegion& region) {
  const ParameterBuilder builder(store, region);
  ParameterBuilder here = builder;
  here.replicated_matrix(Role::embedding, "table", 11, kHidden, 1);
  here.column_parallel_weight(Role::matrix, "query", 24, kHidden, 1);
  here.column_parallel_weight(Role::matrix, "key", 4 * kGroups, kHidden, 1, /*adjacent=*/true, kGroups);
  here.column_parallel_weight(Role::matrix, "value", 4 * kGroups, kHidden, 1, /*adjacent=*/true, kGroups);
  here.row_parallel_weight("out", kHidden, 24, 1);
  here.replicated_vector(Role::norm, "norm", kHidden, 1);
  here.column_parallel_weight(Role::matrix, "up", 40, kHidden, 1);
  here.column_parallel_bias("up.bias", 40);
  here.row_parallel_weight("down", kHidden, 40, 1);
  here.repeated_matrix(Role::matrix, "pooler", kHidden, kHidden, 1);
  ParameterBuilder experts = builder.of_experts();
  for (int expert = 0; expert < kExperts; ++expert) {
    if (expert % grid.shape().expert != grid.expert().rank()) continue;
    experts.column_parallel_weight(Role::matrix, fmt::format("expert {} up", expert), 16, kHidden, 1);
    experts.row_parallel_weight(fmt::format("expert {} down", expert), kHidden, 16, 1);
  }
}

/// The whole gradient of a step. The third one's is not finite.
std::vector<float> gradient_of(const Parameter& parameter, int step) {
  const Owned<float> whole = random_tensor({parameter.global_shape.elements()},
                                           hash_name(parameter.name) + static_cast<std::uint64_t>(step), 0.3);
  std::vector<float> gradient(whole.values().begin(), whole.values().end());
  if (step == 3 && parameter.name == "table") gradient[0] = INFINITY;
  return gradient;
}

struct TrainedMatrices {
  NamedValues values, m;  ///< whole tensors
};

OptimizerConfig settings(bool distributed) {
  // The norm of all ranks' gradients may round otherwise.
  return {.name = "muon", .momentum = 0.9, .clip_grad_norm = 0, .share = distributed ? "state" : "none"};
}

struct TrainingRank {
  TrainingRank(Communicator& world, const GridShape& shape, DType type, bool distributed)
      : grid(world, shape), region(grid, false) {
    declare(store, grid, region);
    mark_matrices(store, settings(distributed), shape.tensor);
    store.allocate(*backend.device, type, distributed ? shards_of(shape) : Shards{}, 300);
    gathers = std::make_unique<ParameterAllGather>(grid, store);
    optimizer = std::make_unique<Optimizer>(store, settings(distributed), *backend.device, *backend.ops, gathers.get(),
                                            &scratch);
    optimizer->initialize(3);
  }

  void train() {
    for (int step = 1; step <= kMatrixSteps; ++step) {
      backend.ops->fill(store.gradients(), store.sharded() ? NAN : 0);  // beyond what a rank owns they are anything
      for (const Parameter& parameter : store.all()) {
        const std::vector<float> gradient = box_of(parameter, gradient_of(parameter, step));
        for (const FlatRange& part : ParameterStore::parts_in(parameter, optimizer->owned())) {
          std::copy_n(gradient.begin() + (part.first - parameter.first), part.count,
                      store.gradients().as<float>() + part.first);
        }
      }
      zero_gaps();
      UpdateStep update(*optimizer, grid, 0, *backend.device, *backend.ops);
      const bool skipped = update.run({.learning_rate = 0.05, .weight_decay = 0.1}, {}).skipped;
      communicator_cases::expect(skipped == (step == 3), "step {}", step);
      check_gradients(step);
    }
    gathers->finish();
    communicator_cases::expect(scratch.used() == 0, "{} bytes are kept", scratch.used());
  }

  /// f32, of a parameter's box.
  std::vector<float> values_of(const Parameter& parameter) const {
    Owned<float> widened({parameter.elements()});
    backend.ops->copy(parameter.value.view({parameter.elements()}), widened.tensor());
    return widened.copied_values();
  }

  ProcessGrid grid;
  TensorRegion region;
  Backend backend = make_cpu_backend();
  ParameterStore store;
  Buffer memory{*backend.device, 1 << 18};
  Arena scratch{"scratch", memory};
  std::unique_ptr<ParameterAllGather> gathers;
  std::unique_ptr<Optimizer> optimizer;

 private:
  void zero_gaps() {
    std::vector<bool> used(static_cast<std::size_t>(store.flat_elements()));
    for (const Parameter& parameter : store.all()) {
      std::fill_n(used.begin() + parameter.first, parameter.elements(), true);
    }
    for (std::int64_t i = 0; i < store.flat_elements(); ++i) {
      if (!used[static_cast<std::size_t>(i)]) store.gradients().as<float>()[i] = 0;
    }
  }
  void check_gradients(int step) const {
    for (const Parameter& parameter : store.all()) {
      const std::vector<float> want = box_of(parameter, gradient_of(parameter, step));
      for (const FlatRange& part : ParameterStore::parts_in(parameter, optimizer->owned())) {
        communicator_cases::expect(
            std::equal(want.begin() + (part.first - parameter.first), want.begin() + (part.end() - parameter.first),
                       store.gradients().as<float>() + part.first),
            "the gradient of {} has changed", parameter.name);
      }
    }
  }
};

TrainedMatrices train_alone(DType type) {
  TrainedMatrices result;
  run_as_threads(1, [&](Communicator& world) {
    TrainingRank rank(world, {}, type, false);
    rank.train();
    for (const Parameter& parameter : rank.store.all()) {
      result.values[parameter.name] = rank.values_of(parameter);
      const Tensor m = numbers_of(rank.optimizer->state({parameter.first, parameter.elements()}).states, "m");
      result.m[parameter.name] = {m.as<float>(), m.as<float>() + m.elements()};
    }
  });
  return result;
}

void require_same(const TrainingRank& rank, const TrainedMatrices& alone) {
  for (const Parameter& parameter : rank.store.all()) {
    communicator_cases::expect(rank.values_of(parameter) == box_of(parameter, alone.values.at(parameter.name)), "{}",
                               parameter.name);
    const std::vector<float> m = box_of(parameter, alone.m.at(parameter.name));
    for (const FlatRange& part : ParameterStore::parts_in(parameter, rank.optimizer->owned())) {
      const Tensor here = numbers_of(rank.optimizer->state(part).states, "m");
      communicator_cases::expect(
          std::equal(here.as<float>(), here.as<float>() + part.count, m.begin() + (part.first - parameter.first)),
          "m of {}", parameter.name);
    }
  }
}

}  // namespace

TEST_CASE("muon: parts of matrices on every layout are updated as one rank's") {
  const GridShape shape =
      GENERATE(GridShape{}, GridShape{.tensor = 2}, GridShape{.tensor = 4, .kv_replicas = 2}, GridShape{.data = 2},
               GridShape{.data = 3}, GridShape{.data = 8}, GridShape{.tensor = 2, .data = 2},
               GridShape{.tensor = 2, .context = 2}, GridShape{.data = 2, .expert = 2},
               GridShape{.tensor = 4, .data = 2, .kv_replicas = 2, .expert = 2},
               GridShape{.tensor = 2, .context = 2, .data = 2, .expert = 2});
  const DType type = GENERATE(DType::f32, DType::bf16);
  const bool distributed = GENERATE(false, true);
  CAPTURE(shape.tensor, shape.context, shape.data, shape.expert, name_of(type), distributed);
  const TrainedMatrices alone = train_alone(type);
  std::mutex mutex;
  std::vector<std::size_t> scratch;
  run_as_threads(shape.ranks(), [&](Communicator& world) {
    TrainingRank rank(world, shape, type, distributed);
    rank.train();
    require_same(rank, alone);
    const std::lock_guard lock(mutex);
    scratch.push_back(rank.scratch.high_water());
  });
  // Whichever matrices a rank has parts of.
  CHECK(scratch == std::vector<std::size_t>(scratch.size(), scratch.front()));
}

namespace {

constexpr std::int64_t kStackWidth = 64;

Config stack(int copies, int layers) {
  Config config;
  config.model =
      model_of({.layers = layers, .hidden = kStackWidth, .heads = 4, .ffn = 4 * kStackWidth, .sequence = 64});
  config.parallel.data = copies;
  config.optimizer = settings(true);
  return config;
}

struct Shared {
  double padding;  ///< unused elements, relative to those in use
  double balance;  ///< the largest cost of a copy, relative to the mean
};

/// Buckets are as small as they may become.
Shared shared(const Config& config) {
  const int copies = static_cast<int>(config.parallel.data);
  CountingCommunicator world(0, copies);
  const ProcessGrid grid(world, {.data = copies});
  const TensorRegion region(grid, false);
  ParameterStore store;
  make_stages(config, grid, region, store);
  mark_matrices(store, ParameterGroups(config), 1);
  store.allocate_sizing(DType::f32, {copies, copies}, 1);
  std::vector<double> costs(static_cast<std::size_t>(copies));
  std::int64_t used = 0;
  for (int copy = 0; copy < copies; ++copy) {
    const std::vector<FlatRange> owned = store.owned_by({copy, copy});
    for (const FlatRange& range : owned) used += range.count;
    for (const Parameter& parameter : store.all()) {
      const std::vector<FlatRange> parts = ParameterStore::parts_in(parameter, owned);
      if (parameter.matrix_cost == 0 || parts.empty()) continue;
      CHECK((parts.size() == 1 && parts[0].count == parameter.elements()));
      costs[static_cast<std::size_t>(copy)] += parameter.matrix_cost;
    }
  }
  const double all = std::accumulate(costs.begin(), costs.end(), 0.0);
  return {static_cast<double>(store.flat_elements()) / static_cast<double>(used) - 1,
          *std::max_element(costs.begin(), costs.end()) * copies / all};
}

}  // namespace

TEST_CASE("muon: copies own whole matrices, about equally much work") {
  for (const auto& [copies, layers, padding, balance] : {std::tuple(2, 12, 0.001, 1.001),
                                                         {3, 12, 0.01, 1.01},
                                                         {4, 12, 0.001, 1.001},
                                                         {8, 12, 0.06, 1.04},
                                                         {8, 24, 0.09, 1.04},
                                                         {8, 32, 0.07, 1.04},
                                                         {16, 32, 0.13, 1.06},
                                                         {16, 12, 0.23, 1.21},
                                                         {64, 12, 0.0, 1.61}}) {
    CAPTURE(copies, layers);
    const Shared how = shared(stack(copies, layers));
    UNSCOPED_INFO("padding " << how.padding << " balance " << how.balance);
    CHECK(how.padding <= padding);
    CHECK(how.balance <= balance);
  }
}

TEST_CASE("muon: each matrix is the work of one copy, counted by a plan") {
  const int copies = GENERATE(1, 2, 3, 16);
  Config config = stack(copies, 2);
  config.train.global_batch_size = copies;
  config.parallel.data = copies;
  config.optimizer.moments_dtype = GENERATE("fp32", "bf16");
  CAPTURE(copies, config.optimizer.moments_dtype);
  double flops = 0;
  std::size_t scratch = 0;
  for (int data = 0; data < copies; ++data) {
    const MemoryPlan plan = plan_memory(config, grid_shape(config), {.data = data});
    flops += plan.update_flops;
    if (data > 0) CHECK(plan.scratch == scratch);
    scratch = plan.scratch;
  }
  CHECK(flops == 2 * (4 * orthogonalize_flops({kStackWidth, kStackWidth}) +
                      2 * orthogonalize_flops({4 * kStackWidth, kStackWidth})));
}

// Who answers for what where data ranks share experts out: on every grid of up to 16 ranks, with the ranks as threads.
// A made-up model of every kind of parameter has the gradients, the norm, the state and the writers of the whole one.
#include <algorithm>
#include <cmath>
#include <map>
#include <mutex>

#include "backend/ops/backends.h"
#include "base/core/philox.h"
#include "distributed/comm/counting_communicator.h"
#include "distributed/comm/thread_communicator.h"
#include "distributed/parallel/gradient_reducer.h"
#include "support/boxes.h"
#include "support/catch.h"
#include "support/tiny_training.h"
#include "training/optimizer/update_step.h"
#include "training/step/saved_layout.h"

using namespace megatron;
using namespace megatron::test;

namespace {

constexpr int kExpertsEach = 2;  // experts of a stage on each expert rank

/// Every grid of up to 16 ranks, with every number of expert ranks; tensor ranks share keys in pairs.
std::vector<GridShape> grids_with_experts() {
  constexpr int most = 16;
  std::vector<GridShape> grids;
  for (int t = 1; t <= most; ++t) {
    for (int c = 1; t * c <= most; ++c) {
      for (int d = 1; t * c * d <= most; ++d) {
        for (int p = 1; t * c * d * p <= most; ++p) {
          for (int e = 1; e <= d; ++e) {
            if (d % e != 0) continue;
            GridShape shape{.tensor = t, .context = c, .data = d, .pipeline = p, .expert = e};
            if (t % 2 == 0) shape.kv_replicas = 2;
            if (p > 1) shape.ties = {{0, p - 1}};
            grids.push_back(shape);
          }
        }
      }
    }
  }
  return grids;
}

/// A matrix [3 · ranks, 5], or a vector [5] where it is not cut.
Parameter made_up(const std::string& name, Placement placement, int rank, int ranks) {
  const bool cut = placement == Placement::split || placement == Placement::kv_replicated;
  Parameter parameter(cut ? Role::matrix : Role::vector);
  parameter.name = name;
  parameter.tensor = placement;
  parameter.owner = rank == 0 || placement == Placement::split;
  parameter.global_shape = cut ? Shape{3 * ranks, 5} : Shape{5};
  parameter.box = cut ? Box{{3 * rank, 0}, {3, 5}} : Box{{0}, {5}};
  return parameter;
}

void declare(ParameterStore& store, const ProcessGrid& grid) {
  const GridShape& shape = grid.shape();
  const GridCoordinates& at = grid.at();
  if (at.pipeline == 0 || at.pipeline == shape.pipeline - 1) {
    const int table = store.declare(made_up("table", Placement::split, at.tensor, shape.tensor));
    if (grid.ties() > 0) store.mark_tied(table, 0, grid.tie(0).rank() == 0);
  }
  const std::string stage = fmt::format("stage {} ", at.pipeline);
  store.declare(made_up(stage + "matrix", Placement::split, at.tensor, shape.tensor));
  Parameter keys = made_up(stage + "keys", Placement::kv_replicated, at.tensor / shape.kv_replicas,
                           shape.tensor / shape.kv_replicas);
  keys.owner = at.tensor % shape.kv_replicas == 0;
  store.declare(std::move(keys));
  store.declare(made_up(stage + "router", Placement::partial, at.tensor, shape.tensor));
  for (int i = 0; i < kExpertsEach; ++i) {
    const std::string expert = fmt::format("{}expert {} ", stage, at.data % shape.expert * kExpertsEach + i);
    for (const auto& [name, placement] :
         {std::pair("up", Placement::split), {"bias", Placement::partial}, {"scale", Placement::replica}}) {
      Parameter parameter = made_up(expert + name, placement, at.tensor, shape.tensor);
      parameter.copies = CopyGroup::experts;
      store.declare(std::move(parameter));
    }
  }
  store.declare(made_up(stage + "norm", Placement::replica, at.tensor, shape.tensor));
}

/// Number that a rank adds to an element's gradient: whole numbers, so that all sums are exact. It is the same on all
/// tensor ranks where each of them computes the gradient by itself.
float contribution(const Parameter& parameter, const GridCoordinates& at, const GridShape& shape,
                   std::int64_t element) {
  GridCoordinates by = at;
  if (parameter.tensor == Placement::replica) by.tensor = 0;
  return static_cast<float>(1 + (hash_name(parameter.name) + 31 * static_cast<std::uint64_t>(rank_of(by, shape)) +
                                 7919 * static_cast<std::uint64_t>(element)) %
                                    7);
}

/// visit(element of the box, element of the whole) for each of a parameter.
template <class Visit>
void for_each_element(const Parameter& parameter, const Visit& visit) {
  for_each_run(parameter, [&](std::int64_t in_whole, std::int64_t in_box, std::int64_t count) {
    for (std::int64_t i = 0; i < count; ++i) visit(in_box + i, in_whole + i);
  });
}

/// The model as one rank would have it: gradients that are the sums of what all holders add.
struct WholeModel {
  std::map<std::string, std::vector<std::int64_t>> gradients;
  double norm = 0;

  explicit WholeModel(const GridShape& shape) {
    for (int rank = 0; rank < shape.ranks(); ++rank) {
      CountingCommunicator world(rank, shape.ranks());
      const ProcessGrid grid(world, shape);
      ParameterStore store;
      declare(store, grid);
      for (const Parameter& parameter : store.all()) {
        if (parameter.tensor == Placement::replica && grid.at().tensor > 0) continue;
        std::vector<std::int64_t>& whole = gradients[parameter.name];
        whole.resize(static_cast<std::size_t>(parameter.global_shape.elements()));
        for_each_element(parameter, [&](std::int64_t, std::int64_t element) {
          whole[static_cast<std::size_t>(element)] += std::llround(contribution(parameter, grid.at(), shape, element));
        });
      }
    }
    for (const auto& [name, whole] : gradients) {
      for (const std::int64_t gradient : whole) norm += static_cast<double>(gradient * gradient);
    }
    norm = std::sqrt(norm);
  }
};

/// Findings of the ranks of a grid, each added under the lock.
struct Findings {
  std::map<std::string, std::vector<int>> writers;  // by element of the whole
  struct Owners {
    std::vector<int> of;  // by element of the whole
    std::int64_t held = 0;
  };
  std::map<std::pair<std::string, int>, Owners> owners;  // by parameter and group of copies, of which there are several
  std::vector<std::string> wrong;
};

void count(std::vector<int>& counts, const Parameter& parameter, const FlatRange& part) {
  counts.resize(static_cast<std::size_t>(parameter.global_shape.elements()));
  for_each_element(parameter, [&](std::int64_t in_box, std::int64_t element) {
    const std::int64_t flat = parameter.first + in_box;
    if (flat >= part.first && flat < part.end()) ++counts[static_cast<std::size_t>(element)];
  });
}

/// Gradients, norm, owners and writers of one rank.
void play(const ProcessGrid& grid, bool distributed, const WholeModel& whole, Findings& findings, std::mutex& mutex) {
  const GridShape& shape = grid.shape();
  Backend backend = make_cpu_backend();
  ParameterStore store;
  declare(store, grid);
  store.allocate(*backend.device, DType::f32, distributed ? shards_of(shape) : Shards{}, 40);
  backend.ops->fill(store.values(), 0);
  backend.ops->fill(store.gradients(), 0);
  for (const Parameter& parameter : store.all()) {
    for_each_element(parameter, [&](std::int64_t in_box, std::int64_t element) {
      parameter.gradient.as<float>()[in_box] = contribution(parameter, grid.at(), shape, element);
      const std::vector<std::int64_t>& sums = whole.gradients.at(parameter.name);
      parameter.value.as<float>()[in_box] = static_cast<float>(sums[static_cast<std::size_t>(element)]);
    });
  }
  const Buffer memory(*backend.device, 4096);
  Arena scratch("scratch", memory);
  GradientReducer reducer(grid, store);
  reducer.reduce_from(1);
  reducer.finish(*backend.ops, scratch);
  ParameterAllGather gathers(grid, store);
  Optimizer optimizer(store, {}, *backend.device, *backend.ops, &gathers);
  const std::vector<float> summed(store.gradients().as<float>(), store.gradients().as<float>() + store.flat_elements());
  UpdateStep step(optimizer, grid, 0, *backend.device, *backend.ops);
  const double norm_of_values = step.parameter_norm(), norm = step.run({}, {}).gradient_norm;
  optimizer.wait_for_values();

  const std::lock_guard lock(mutex);
  if (norm != static_cast<double>(static_cast<float>(whole.norm))) {
    findings.wrong.push_back(fmt::format("norm {} of {}", norm, whole.norm));
  }
  if (norm_of_values != whole.norm) {
    findings.wrong.push_back(fmt::format("norm of values {} of {}", norm_of_values, whole.norm));
  }
  for (const Parameter& parameter : store.all()) {
    // Ranks with the same tensor and pipeline coordinates that hold the parameter are its copies.
    const std::pair key(parameter.name, grid.at().pipeline * shape.tensor + grid.at().tensor);
    for (const FlatRange& part : ParameterStore::parts_in(parameter, optimizer.owned())) {
      Findings::Owners& owners = findings.owners[key];
      owners.held = parameter.elements();
      count(owners.of, parameter, part);
      for_each_element(parameter, [&](std::int64_t in_box, std::int64_t element) {
        const std::int64_t flat = parameter.first + in_box;
        if (flat < part.first || flat >= part.end()) return;
        const auto want = static_cast<float>(whole.gradients.at(parameter.name)[static_cast<std::size_t>(element)]);
        const float got = summed[static_cast<std::size_t>(flat)];
        if (got != want) findings.wrong.push_back(fmt::format("{}[{}]: {} {}", parameter.name, element, got, want));
      });
    }
  }
  for (const SavedPart& part : saved_parts(store, grid.at(), grid.shape())) {
    count(findings.writers[part.parameter->name], *part.parameter, part.range);
  }
}

/// Whether all that the copies hold has one owner among them with shards, else each of them.
bool owned_rightly(const std::string& name, const Findings::Owners& owners, const GridShape& shape, bool distributed) {
  const CopyGroup group = name.find("expert") != std::string::npos ? CopyGroup::experts : CopyGroup::dense;
  const int expected = distributed ? 1 : shape.copies(group);
  const auto owned = std::count(owners.of.begin(), owners.of.end(), expected);
  const auto not_held = std::count(owners.of.begin(), owners.of.end(), 0);
  return owned == owners.held && owned + not_held == static_cast<std::int64_t>(owners.of.size());
}

}  // namespace

TEST_CASE("owners: with experts all is the whole model's on every small grid", "[train]") {
  for (const GridShape& shape : grids_with_experts()) {
    const WholeModel whole(shape);
    for (const bool distributed : {false, true}) {
      CAPTURE(shape.tensor, shape.context, shape.data, shape.pipeline, shape.expert, distributed);
      Findings findings;
      std::mutex mutex;
      run_as_threads(shape.ranks(), [&](Communicator& world) {
        const ProcessGrid grid(world, shape);
        play(grid, distributed, whole, findings, mutex);
      });
      for (const auto& [name, gradients] : whole.gradients) {
        const std::vector<int>& writers = findings.writers[name];
        if (writers != std::vector<int>(gradients.size(), 1)) findings.wrong.push_back("writers of " + name);
      }
      for (const auto& [key, owners] : findings.owners) {
        if (!owned_rightly(key.first, owners, shape, distributed)) findings.wrong.push_back("owners of " + key.first);
      }
      REQUIRE(findings.wrong == std::vector<std::string>{});
    }
  }
}

TEST_CASE("owners: without experts a model trains the same on expert ranks", "[train]") {
  Config config = tiny_config();
  config.optimizer.share = GENERATE("none", "state", "gradients", "weights");
  CAPTURE(config.optimizer.share);
  const TrainingTrace without = train_tiny(config, 2, 4, 1, 3);
  config.parallel.expert = 2;
  const TrainingTrace with = train_tiny(config, 2, 4, 1, 3);
  CHECK(with.losses == without.losses);
  CHECK(with.norms == without.norms);
  CHECK(with.evaluation == without.evaluation);
  CHECK(with.parameters == without.parameters);
}

// Who answers for what: on every grid of up to 16 ranks each element of each parameter is counted once in the norm of a
// model, and written once to a checkpoint. Every rank is played alone, with communicators that move nothing.
#include <algorithm>
#include <cmath>
#include <map>

#include "backend/ops/backends.h"
#include "base/core/philox.h"
#include "distributed/comm/counting_communicator.h"
#include "models/families/family.h"
#include "models/layers/parameter_builder.h"
#include "support/boxes.h"
#include "support/catch.h"
#include "training/optimizer/update_step.h"
#include "training/step/grid.h"
#include "training/step/saved_layout.h"

using namespace megatron;
using namespace megatron::test;

namespace {

/// Every grid of up to 16 ranks, with every number of tensor ranks that can share keys, without experts and ties.
std::vector<GridShape> all_grids() {
  constexpr int most = 16;
  std::vector<GridShape> grids;
  for (int t = 1; t <= most; ++t) {
    for (int c = 1; t * c <= most; ++c) {
      for (int d = 1; t * c * d <= most; ++d) {
        for (int p = 1; t * c * d * p <= most; ++p) {
          for (int kv = 1; kv <= t; ++kv) {
            if (t % kv == 0) grids.push_back({.tensor = t, .context = c, .data = d, .pipeline = p, .kv_replicas = kv});
          }
        }
      }
    }
  }
  return grids;
}

/// A gradient that hardly any other element has; whole numbers, so that sums of squares are exact.
float gradient_of(const std::string& name, std::int64_t element) {
  return static_cast<float>(1 + (hash_name(name) + 7919 * static_cast<std::uint64_t>(element)) % 29);
}

/// For each element of the box: which one of the whole tensor it is.
template <class Boxed>
std::vector<std::int64_t> elements_of(const Boxed& boxed) {
  std::vector<std::int64_t> elements(static_cast<std::size_t>(boxed.box.extent.elements()));
  for_each_run(boxed, [&](std::int64_t in_whole, std::int64_t in_box, std::int64_t count) {
    for (std::int64_t i = 0; i < count; ++i) elements[static_cast<std::size_t>(in_box + i)] = in_whole + i;
  });
  return elements;
}

/// Elements that all ranks of a grid count and write.
class Tally {
 public:
  explicit Tally(Backend& backend) : backend_(backend) {}

  /// The rank's own share of the norms of gradients and of values, as its optimizer counts it. The store is declared
  /// and not allocated.
  void count(const ProcessGrid& grid, ParameterStore& store, const Shards& shards) {
    store.allocate(*backend_.device, DType::f32, shards, 40);
    backend_.ops->fill(store.values(), 0);
    backend_.ops->fill(store.gradients(), 0);
    for (const Parameter& parameter : store.all()) {
      std::vector<int>& written = written_[parameter.name];
      if (written.empty()) {
        written.resize(static_cast<std::size_t>(parameter.global_shape.elements()));
        for (std::size_t i = 0; i < written.size(); ++i) {
          const auto gradient = static_cast<std::int64_t>(gradient_of(parameter.name, static_cast<std::int64_t>(i)));
          whole_ += gradient * gradient;
        }
      }
      const std::vector<std::int64_t> elements = elements_of(parameter);
      for (std::size_t i = 0; i < elements.size(); ++i) {
        parameter.value.as<float>()[i] = parameter.gradient.as<float>()[i] = gradient_of(parameter.name, elements[i]);
      }
    }
    ParameterAllGather gathers(grid, store);
    Optimizer optimizer(store, {}, *backend_.device, *backend_.ops, &gathers);
    UpdateStep step(optimizer, grid, 0, *backend_.device, *backend_.ops);
    const double of_values = step.parameter_norm(), norm = step.run({}, {}).gradient_norm;
    counted_values_ += std::llround(of_values * of_values);
    counted_ += std::llround(norm * norm);
  }

  template <class Boxed>
  void write(const Boxed& boxed, const std::string& name, std::int64_t first, std::int64_t count) {
    const std::vector<std::int64_t> elements = elements_of(boxed);
    for (std::int64_t i = first; i < first + count; ++i) {
      ++written_.at(name)[static_cast<std::size_t>(elements[static_cast<std::size_t>(i)])];
    }
  }

  std::int64_t counted() const { return counted_; }
  std::int64_t counted_values() const { return counted_values_; }
  std::int64_t whole() const { return whole_; }
  /// Names of parameters with elements that have no writer, or several.
  std::vector<std::string> written_wrongly() const {
    std::vector<std::string> names;
    for (const auto& [name, writers] : written_) {
      if (std::any_of(writers.begin(), writers.end(), [](int n) { return n != 1; })) names.push_back(name);
    }
    return names;
  }

 private:
  Backend& backend_;
  std::map<std::string, std::vector<int>> written_;
  std::int64_t counted_ = 0, counted_values_ = 0, whole_ = 0;
};

void require_one_owner(const GridShape& shape, const Shards& shards, const Tally& tally) {
  CAPTURE(shape.tensor, shape.context, shape.data, shape.pipeline, shape.kv_replicas, shards.dense);
  // Without shards each copy of the model counts all of it.
  CHECK(tally.counted() == tally.whole() * (shards.dense > 1 ? 1 : shape.copies()));
  CHECK(tally.counted_values() == tally.counted());
  CHECK(tally.written_wrongly() == std::vector<std::string>{});
}

/// Every kind of parameter on each stage, and some that two or three stages hold.
void declare_made_up(ParameterStore& store, const ProcessGrid& grid, const TensorRegion& region) {
  ParameterBuilder builder(store, region);
  const int t = region.size(), groups = t / region.kv_replicas();
  const auto stages_hold = [&](int tie) {
    const std::vector<int> stages =
        tie < grid.ties() ? grid.shape().ties[static_cast<std::size_t>(tie)] : std::vector<int>{0};
    return std::find(stages.begin(), stages.end(), grid.at().pipeline) != stages.end();
  };
  const auto mark = [&](int index, int tie) {
    if (tie < grid.ties()) store.mark_tied(index, tie, grid.tie(tie).rank() == 0);
  };
  if (stages_hold(0)) mark(builder.column_parallel_weight(Role::embedding, "table", 2 * t, 3, 1), 0);
  if (stages_hold(1)) mark(builder.replicated_matrix(Role::embedding, "positions", 5, 3, 1), 1);
  const std::string stage = fmt::format("stage {} ", grid.at().pipeline);
  builder.replicated_vector(Role::norm, stage + "norm", 5, 1);
  builder.column_parallel_weight(Role::matrix, stage + "queries", 3 * t, 2, 1);
  builder.column_parallel_weight(Role::matrix, stage + "keys", 2 * groups, 2, 1, /*adjacent=*/true, groups);
  builder.column_parallel_bias(stage + "key bias", groups, /*adjacent=*/false, groups);
  builder.replicated_vector_partial_gradient(Role::norm, stage + "head norm", 3, 1);
  builder.row_parallel_weight(stage + "down", 2, 3 * t, 1);
  if (stages_hold(1)) mark(builder.replicated_vector(Role::norm, "shared norm", 37, 1), 1);
}

/// How copies share the optimizer's state out.
enum class Sharing { none, equal_parts, whole_matrices, in_two_sets };

void mark_all_matrices(ParameterStore& store) {
  for (const Parameter& parameter : store.all()) {
    if (parameter.role == Role::matrix) {
      store.mark_matrix(parameter.index, static_cast<double>(parameter.global_shape.elements()));
    }
  }
}

/// Ties of {first, last} and {first, one between, last}, as far as there are such stages.
std::vector<std::vector<int>> made_up_ties(int stages) {
  if (stages == 1) return {};
  if (stages == 2) return {{0, 1}};
  return {{0, stages - 1}, {0, stages / 2, stages - 1}};
}

}  // namespace

TEST_CASE("owners: made-up parameters count and are written once on every grid", "[train]") {
  Backend backend = make_cpu_backend();
  for (GridShape shape : all_grids()) {
    shape.ties = made_up_ties(shape.pipeline);
    for (const Sharing sharing : {Sharing::none, Sharing::equal_parts, Sharing::whole_matrices, Sharing::in_two_sets}) {
      shape.replicas = sharing == Sharing::in_two_sets ? 2 : 1;
      if (shape.replicas > 1 && (shape.data % shape.replicas != 0 || shape.shards() == 1)) continue;
      for (const bool sequence_parallel : {false, true}) {
        const Shards shards = sharing == Sharing::none ? Shards{} : shards_of(shape);
        Tally tally(backend);
        for (int rank = 0; rank < shape.ranks(); ++rank) {
          CountingCommunicator world(rank, shape.ranks());
          const ProcessGrid grid(world, shape);
          const TensorRegion region(grid, sequence_parallel);
          ParameterStore store;
          declare_made_up(store, grid, region);
          if (sharing == Sharing::whole_matrices) mark_all_matrices(store);
          tally.count(grid, store, shards);
          for (const SavedPart& part : saved_parts(store, grid.at(), grid.shape())) {
            tally.write(*part.parameter, part.parameter->name, part.range.first - part.parameter->first,
                        part.range.count);
          }
        }
        require_one_owner(shape, shards, tally);
      }
    }
  }
}

TEST_CASE("owners: GPT's parameters count and are written once on every grid", "[train]") {
  Backend backend = make_cpu_backend();
  for (const GridShape& extents : all_grids()) {
    Config config;
    config.parallel.tensor = extents.tensor;
    config.parallel.context = extents.context;
    config.parallel.data = extents.data;
    config.parallel.pipeline = extents.pipeline;
    config.parallel.virtual_stages = extents.pipeline > 1 && extents.data == 1 ? 2 : 1;
    config.parallel.sequence_parallel = extents.context == 1;
    ModelConfig& model = config.model;
    model.layers = extents.pipeline * config.parallel.virtual_stages;
    model.attention_heads = extents.tensor;
    model.query_groups = extents.tensor / extents.kv_replicas;
    model.hidden_size = 2 * extents.tensor;
    model.ffn_hidden_size = 3 * extents.tensor;
    model.sequence_length = model.max_position_embeddings = 3;
    model.vocab_size = 5;
    model.vocab_multiple = extents.tensor;
    for (const bool distributed : {false, true}) {
      for (const bool tied : {false, true}) {
        config.optimizer.share = distributed ? "state" : "none";
        model.tie_embeddings = tied;
        const GridShape shape = grid_shape(config);
        REQUIRE(shape.kv_replicas == extents.kv_replicas);
        REQUIRE(shape.ties.size() == (tied && shape.pipeline > 1 ? 1 : 0));
        const Shards shards = optimizer_shards(config, shape);
        Tally tally(backend);
        for (int rank = 0; rank < shape.ranks(); ++rank) {
          CountingCommunicator world(rank, shape.ranks());
          const ProcessGrid grid(world, shape);
          const TensorRegion region(grid, config.parallel.sequence_parallel);
          ParameterStore store;
          const Stages stages = make_stages(config, grid, region, store);
          tally.count(grid, store, shards);
          for (const TensorSlice& slice : saved_layout(config, rank)) {
            tally.write(slice, slice.name, slice.first, slice.count);
          }
        }
        require_one_owner(shape, shards, tally);
      }
    }
  }
}

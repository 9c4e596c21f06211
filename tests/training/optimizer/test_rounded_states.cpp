// optimizer.moments_dtype = "bf16": states that are rounded stochastically after each update.
#include <cmath>
#include <cstring>
#include <map>
#include <mutex>

#include "backend/ops/backends.h"
#include "base/core/half.h"
#include "distributed/comm/thread_communicator.h"
#include "support/catch.h"
#include "support/communicator_cases.h"
#include "training/optimizer/optimizer_support.h"

using namespace megatron;
using namespace megatron::test;

namespace {

OptimizerConfig narrow(const char* rule, double momentum = 0.9) {
  return {.name = rule, .beta1 = 0.9, .beta2 = 0.95, .momentum = momentum, .moments_dtype = "bf16"};
}

/// States and masters by "parameter name", as bits.
using RoundedBits = std::map<std::string, std::vector<std::uint32_t>>;

struct CutWeight {
  const char* name;
  Shape shape;
  bool cut;  ///< over tensor ranks, by its columns
};
// The second is cut by shards, and the others share shards with their neighbours. The columns of the first are no
// multiple of 8, and neither is the place of its second half.
const CutWeight kCutWeights[] = {{"narrow", {21, 14}, true},
                                 {"wide", {700, 500}, true},
                                 {"bias", {13}, false},
                                 {"norm", {500}, false},
                                 {"last", {40, 9}, false}};

/// Where the ranks of kCutWeights' matrices end up.
struct Grid {
  int tensor = 1, data = 1;
  bool distributed = false;
};

Parameter part_of(const CutWeight& weight, const ProcessGrid& grid) {
  Parameter parameter = parameter_of(weight.name, weight.shape, weight.shape.rank() == 2);
  if (!weight.cut) return parameter;
  const std::int64_t columns = weight.shape[1] / grid.shape().tensor;
  parameter.box.offset[1] = grid.at().tensor * columns;
  parameter.box.extent[1] = columns;
  parameter.tensor = Placement::split;
  return parameter;
}

/// Values or gradients: numbers of the global element.
void set_numbers_of(const Parameter& parameter, Tensor box, std::uint64_t seed, double width) {
  const Owned<float> whole = random_tensor(parameter.global_shape, seed ^ hash_name(parameter.name), width);
  const bool matrix = parameter.global_shape.rank() == 2;
  const std::int64_t columns = matrix ? parameter.box.extent[1] : parameter.elements();
  for (std::int64_t i = 0; i < parameter.elements(); ++i) {
    const std::int64_t at = matrix ? (parameter.box.offset[0] + i / columns) * parameter.global_shape[1] +
                                         parameter.box.offset[1] + i % columns
                                   : i;
    box.as<float>()[i] = whole[at];
  }
}

/// Puts a part's numbers in their places of the whole.
void put(const Parameter& parameter, const FlatRange& part, ConstTensor numbers, std::vector<std::uint32_t>& whole) {
  whole.resize(static_cast<std::size_t>(parameter.global_shape.elements()));
  const bool matrix = parameter.global_shape.rank() == 2;
  const std::int64_t columns = matrix ? parameter.box.extent[1] : parameter.elements();
  for (std::int64_t i = 0; i < part.count; ++i) {
    const std::int64_t in_box = part.first - parameter.first + i;
    const std::int64_t at = matrix ? (parameter.box.offset[0] + in_box / columns) * parameter.global_shape[1] +
                                         parameter.box.offset[1] + in_box % columns
                                   : in_box;
    whole[static_cast<std::size_t>(at)] = numbers.dtype() == DType::bf16
                                              ? numbers.as<BFloat16>()[i].bits
                                              : std::bit_cast<std::uint32_t>(numbers.as<float>()[i]);
  }
}

/// Three updates with clipping off, so that all grids have the same factor to the bit.
RoundedBits train_on(const Grid& layout, OptimizerConfig config, std::uint64_t seed = 3) {
  config.clip_grad_norm = 0;
  RoundedBits bits;
  std::mutex mutex;
  run_as_threads(layout.tensor * layout.data, [&](Communicator& world) {
    const ProcessGrid grid(world, {.tensor = layout.tensor, .data = layout.data});
    Backend backend = make_cpu_backend();
    ParameterStore store;
    for (const CutWeight& weight : kCutWeights) store.declare(part_of(weight, grid));
    const ParameterGroups groups(config);
    mark_matrices(store, groups, layout.tensor);
    store.allocate(*backend.device, DType::f32, {layout.distributed ? layout.data : 1}, 1000);
    ParameterAllGather gathers(grid, store);
    const Buffer memory(*backend.device, 64 << 20);
    Arena scratch("scratch", memory);
    Optimizer optimizer(store, groups, *backend.device, *backend.ops, &gathers, &scratch);
    optimizer.initialize(seed);
    for (const Parameter& parameter : store.all()) set_numbers_of(parameter, parameter.value, 1, 1);
    for (std::uint64_t step = 2; step <= 4; ++step) {
      for (const Parameter& parameter : store.all()) set_numbers_of(parameter, parameter.gradient, step, 0.1);
      update(optimizer, backend, grid, kUpdate);
      gathers.finish();
    }
    communicator_cases::expect(scratch.used() == 0, "scratch is kept");
    const std::lock_guard lock(mutex);
    for (const Parameter& parameter : store.all()) {
      for (const FlatRange& part : ParameterStore::parts_in(parameter, optimizer.owned())) {
        const Optimizer::State state = optimizer.state(part);
        put(parameter, part, state.master, bits[parameter.name]);
        for (const auto& [name, numbers] : state.states)
          put(parameter, part, numbers, bits[parameter.name + " " + name]);
      }
    }
  });
  return bits;
}

}  // namespace

TEST_CASE("bf16 moments: their bits depend on the element, not on the layout") {
  const OptimizerConfig config = GENERATE(narrow("adamw"), narrow("sgd"), narrow("lion"));
  CAPTURE(config.name);
  const RoundedBits one = train_on({}, config);
  REQUIRE(one.size() == std::size(kCutWeights) * (config.name == "adamw" ? 3 : 2));
  for (const Grid& grid : {Grid{2, 1, false}, Grid{1, 3, true}, Grid{2, 2, true}}) {
    CAPTURE(grid.tensor, grid.data);
    CHECK(train_on(grid, config) == one);
  }
  CHECK(train_on({}, config, 4).at("wide m") != one.at("wide m"));  // another seed draws otherwise
}

TEST_CASE("bf16 moments: Muon's too, in shards and as one") {
  const OptimizerConfig config = narrow("muon");
  const RoundedBits one = train_on({}, config);
  CHECK(one.size() == std::size(kCutWeights) * 2 + 2);  // vectors are AdamW's
  for (const Grid& grid : {Grid{1, 2, true}, Grid{2, 1, false}, Grid{2, 2, true}}) {
    CAPTURE(grid.tensor, grid.data);
    CHECK(train_on(grid, config) == one);
  }
}

namespace {

struct RoundingRank {
  RoundingRank(Communicator& world, const OptimizerConfig& config) : grid(world, {}) {
    declare_all(store);
    store.allocate(*backend.device, DType::f32);
    gathers = std::make_unique<ParameterAllGather>(grid, store);
    optimizer = std::make_unique<Optimizer>(store, ParameterGroups(config), *backend.device, *backend.ops,
                                            gathers.get(), &scratch);
    optimizer->initialize(1);
    set_values(store);
  }
  std::vector<std::byte> state_bits() const {
    std::vector<std::byte> bits;
    for (const NamedState& state : optimizer->all_states()) {
      const auto* const from = static_cast<const std::byte*>(state.numbers.data());
      bits.insert(bits.end(), from, from + state.numbers.bytes());
    }
    return bits;
  }

  ProcessGrid grid;
  Backend backend = make_cpu_backend();
  ParameterStore store;
  Buffer memory{*backend.device, 1 << 20};
  Arena scratch{"scratch", memory};
  std::unique_ptr<ParameterAllGather> gathers;
  std::unique_ptr<Optimizer> optimizer;
};

std::vector<double> numbers_of(const Tensor& state) {
  std::vector<double> numbers;
  for (std::int64_t i = 0; i < state.elements(); ++i) {
    numbers.push_back(
        static_cast<double>(state.dtype() == DType::bf16 ? to_float(state.as<BFloat16>()[i]) : state.as<float>()[i]));
  }
  return numbers;
}

double distance(const std::vector<double>& a, const std::vector<double>& b) {
  double squares = 0, difference = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    squares += b[i] * b[i];
    difference += (a[i] - b[i]) * (a[i] - b[i]);
  }
  return std::sqrt(difference / squares);
}

}  // namespace

TEST_CASE("bf16 moments: half the memory, and zeros between parameters") {
  for (const auto& [rule, states] : {std::pair("adamw", 2), std::pair("sgd", 1), std::pair("lion", 1)}) {
    CAPTURE(rule);
    run_as_threads(1, [&](Communicator& world) {
      RoundingRank rank(world, narrow(rule));
      const auto elements = static_cast<std::size_t>(rank.store.flat_elements());
      CHECK(rank.optimizer->state_bytes() == 2 * static_cast<std::size_t>(states) * elements);
      CHECK(rank.optimizer->state_bytes() == Optimizer::state_bytes(rank.store, {}, narrow(rule)).kept);
      set_gradients(rank.store, 1, 0.3);
      update(*rank.optimizer, rank.backend, rank.grid, kUpdate);
      std::vector<bool> gap(elements, true);
      for (const Parameter& parameter : rank.store.all()) {
        std::fill_n(gap.begin() + parameter.first, parameter.elements(), false);
      }
      std::int64_t zeros = 0;
      for (const NamedState& state : rank.optimizer->all_states()) {
        for (std::size_t i = 0; i < elements; ++i) zeros += gap[i] && state.numbers.as<BFloat16>()[i].bits != 0 ? 1 : 0;
      }
      CHECK(zeros == 0);
    });
  }
}

TEST_CASE("bf16 moments: a skipped step leaves every bit") {
  const OptimizerConfig config = GENERATE(narrow("adamw"), narrow("sgd"), narrow("lion"), narrow("muon"));
  CAPTURE(config.name);
  run_as_threads(1, [&](Communicator& world) {
    RoundingRank rank(world, config);
    for (std::uint64_t step = 1; step <= 2; ++step) {
      set_gradients(rank.store, step, 0.3);
      update(*rank.optimizer, rank.backend, rank.grid, kUpdate);
    }
    const std::vector<std::byte> before = rank.state_bits();
    const std::vector<float> values = copy_of(rank.store.values());
    set_gradients(rank.store, 3, 0.3);
    rank.store.at(1).gradient.as<float>()[0] = NAN;
    CHECK(update(*rank.optimizer, rank.backend, rank.grid, kUpdate).skipped);
    CHECK(rank.state_bits() == before);
    CHECK(copy_of(rank.store.values()) == values);
    set_gradients(rank.store, 3, 0.3);
    update(*rank.optimizer, rank.backend, rank.grid, kUpdate);
    CHECK(rank.state_bits() != before);
  });
}

TEST_CASE("bf16 moments: changes too small for rounding to nearest add up") {
  run_as_threads(1, [](Communicator& world) {
    // v decays by a thousandth per update: less than half of bf16's last place, in which nearest would keep v forever.
    OptimizerConfig config = narrow("adamw");
    config.beta2 = 0.999;
    RoundingRank rank(world, config);
    rank.backend.ops->fill(rank.store.gradients(), 0);
    const Tensor v = state_of(*rank.optimizer, "v");
    const Parameter& matrix = rank.store.all().front();
    const auto mean = [&] {
      double sum = 0;
      for (std::int64_t i = 0; i < matrix.elements(); ++i) {
        sum += static_cast<double>(to_float(v.as<BFloat16>()[matrix.first + i]));
      }
      return sum / static_cast<double>(matrix.elements());
    };
    for (std::int64_t i = 0; i < matrix.elements(); ++i) v.as<BFloat16>()[matrix.first + i] = to_bfloat16(1.5f);
    REQUIRE(to_bfloat16(1.5f * 0.999f) == to_bfloat16(1.5f));
    for (int step = 0; step < 700; ++step) update(*rank.optimizer, rank.backend, rank.grid, {.learning_rate = 0});
    CHECK(mean() == Approx(1.5 * std::pow(0.999, 700)).epsilon(0.1));
  });
}

TEST_CASE("bf16 moments: twenty steps stay close to those in fp32") {
  const char* const rule = GENERATE("adamw", "sgd", "lion", "muon");
  CAPTURE(rule);
  const auto trained = [&](OptimizerConfig config) {
    std::map<std::string, std::vector<double>> numbers;
    run_as_threads(1, [&](Communicator& world) {
      RoundingRank rank(world, config);
      const std::vector<float> start = copy_of(rank.store.values());
      for (std::uint64_t step = 1; step <= 20; ++step) {
        // A part that stays and one that changes.
        set_gradients(rank.store, 100, 0.3);
        const std::vector<float> stays = copy_of(rank.store.gradients());
        set_gradients(rank.store, step, 0.3);
        for (std::size_t i = 0; i < stays.size(); ++i) rank.store.gradients().as<float>()[i] += stays[i];
        update(*rank.optimizer, rank.backend, rank.grid, kUpdate);
      }
      numbers["way"] = numbers_of(rank.store.values());
      for (std::size_t i = 0; i < start.size(); ++i) numbers["way"][i] -= static_cast<double>(start[i]);
      for (const NamedState& state : rank.optimizer->all_states()) {
        std::vector<double>& all = numbers[state.name];
        const std::vector<double> its = numbers_of(state.numbers);
        all.insert(all.end(), its.begin(), its.end());
      }
    });
    return numbers;
  };
  OptimizerConfig wide = narrow(rule);
  wide.moments_dtype = "fp32";
  const auto expected = trained(wide), found = trained(narrow(rule));
  REQUIRE(found.size() == expected.size());
  for (const auto& [name, numbers] : expected) {
    CAPTURE(name);
    // Each update rounds by up to 2^-8: 0.0023 on average of squares. A sign that turns is a whole step of Lion's.
    const double far = distance(found.at(name), numbers);
    CHECK(far < (name == "way" && std::string(rule) == "lion" ? 0.05 : 0.01));
    CHECK(far > 1e-5);
  }
}

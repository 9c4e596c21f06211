// megatron_train --verify, with ranks as threads: right layouts pass, and planted defects are found and named. The
// report by itself: test_parity_report.cpp; under a launcher: faults/test_verify.cpp.
#include <cmath>
#include <functional>

#include "backend/ops/backends.h"
#include "distributed/comm/thread_communicator.h"
#include "support/catch.h"
#include "support/forgetful_communicator.h"
#include "support/small_corpus.h"
#include "training/diagnostics/tensor_comparison.h"
#include "training/loop/verify_layout.h"

using namespace megatron;
using namespace megatron::test;

namespace {

/// Verifies on threads; groups of this name forget their sums. The comparison is to find it, not the check of
/// collectives.
void verify_on(int ranks, const Config& config, const std::string& forgetful_group = "none") {
  run_as_threads(ranks, [&](Communicator& world) {
    ForgetfulCommunicator forgetful(world, forgetful_group);
    Log log(false);
    internal_check(verify_layout(config, forgetful, {.host = "node07", .version = "0", .job = {}}, log,
                                 /*check_collectives=*/forgetful_group == "none") == 0,
                   "an exit code without an error");
  });
}

}  // namespace

TEST_CASE("right layouts are verified") {
  const ShardFolder folder;
  Config config = small_run(folder, 2, 2);
  verify_on(8, config);
  config.parallel.sequence_parallel = true;
  config.train.micro_batch_size = 2;
  verify_on(4, config);
  config = small_run(folder, 1, 1);
  verify_on(1, config);  // nothing to compare
  config.train.micro_batch_size = 4;
  verify_on(1, config);
}

TEST_CASE("verify: fp16 uses a fitting loss scale and compares without it") {
  const ShardFolder folder;
  Config config = small_run(folder, 2, 2);
  config.precision.compute = "fp16";
  config.optimizer.share = "state";
  verify_on(8, config);
  require_error(ErrorKind::numerics, {"embedding.word.weight"}, [&] { verify_on(8, config, "tie 0"); });
  config = small_run(folder, 2, 1);
  config.precision.compute = "bf16";
  config.precision.loss_scale = 3000;
  verify_on(2, config);
}

TEST_CASE("schedules and sharing are verified as the file has them") {
  const ShardFolder folder;
  Config config = small_run(folder, 2, 2);
  config.parallel.schedule = "zero_bubble";
  config.parallel.overlap_gradients = true;
  config.parallel.sequence_parallel = true;
  config.recompute = {"full", 1};
  config.train.batch_ramp_up = {4, 4, 8};
  verify_on(8, config);
  config.parallel.schedule = "interleaved";
  config.parallel.virtual_stages = 2;
  config.parallel.layers_per_stage = {1, 1, 1, 1};
  verify_on(8, config);
  config.train.batch_ramp_up = {};
  config.train.curriculum = {"fixed_linear", 4, 4, 4, 2, {}, {}};
  config.optimizer.share = "state";  // gradients lie in slices
  verify_on(8, config);
  config.optimizer.moments_dtype = "bf16";  // rounded alike on every layout, or updates would differ
  verify_on(8, config);
  require_error(ErrorKind::numerics, {"embedding.word.weight"}, [&] { verify_on(8, config, "tie 0"); });
}

TEST_CASE("a loss scale that overflows is told from a wrong layout") {
  const ShardFolder folder;
  Config config = small_run(folder, 2, 1);
  config.precision.compute = "fp16";
  config.precision.loss_scale = 1 << 30;
  require_error(
      ErrorKind::numerics,
      {"one rank in fp16 does not train", "not the layout but the precision", "gradients of step 1", "by inf"},
      [&] { verify_on(2, config); });
}

TEST_CASE("a choice bias is compared with that of the same precision") {
  const ShardFolder folder;
  // Choices of 16 bits are not always those of fp32, and the bias follows them by whole steps.
  for (const char* precision : {"bf16", "fp16"}) {
    Config config = small_run(folder, 1, 2);
    with_balanced_experts(config.model);
    config.precision.compute = precision;
    config.train.micro_batch_size = 2;
    for (std::uint64_t seed = 1; seed <= 4; ++seed) {
      config.train.seed = seed;
      CAPTURE(precision, seed);
      verify_on(2, config);
    }
  }
}

TEST_CASE("a gradient sum that is left out is found, and its parameter named") {
  const ShardFolder folder;
  require_error(ErrorKind::numerics,
                {"in fp32", "1 of 68 gradients of step 1", "the only one is embedding.word.weight"},
                [&] { verify_on(2, small_run(folder, 1, 2), "tie 0"); });
  // All but the key biases, whose gradients are nearly zero with and without.
  require_error(ErrorKind::numerics, {"64 of 68 gradients", "final_norm.bias"},
                [&] { verify_on(2, small_run(folder, 1, 1), "data"); });
  require_error(ErrorKind::numerics, {"the loss of step 1", "the forward pass"},
                [&] { verify_on(2, small_run(folder, 2, 1), "tensor"); });
}

TEST_CASE("verify: parameters that an update did not reach are found") {
  const ShardFolder folder;
  Config config = small_run(folder, 1, 1);
  config.optimizer.share = "state";
  config.learning_rate.peak = 1e-9;
  require_error(ErrorKind::numerics, {"after step 3", "embedding.word.weight", "rank 1 ("},
                [&] { verify_on(2, config, "data gathers"); });
}

TEST_CASE("verify: a reference that does not fit is refused before allocation") {
  const ShardFolder folder;
  Config config = small_run(folder, 2, 1);
  config.model.hidden_size = 1 << 16;
  config.model.ffn_hidden_size = 1 << 18;
  config.model.layers = 40;
  require_error(ErrorKind::configuration, {"whole model on one rank", "GiB on node07", "are free", "model.layers"},
                [&] { verify_on(2, config); });
}

TEST_CASE("gradients that are rounding alone are verified") {
  const ShardFolder folder;
  // A token that sees only itself: in exact arithmetic no query and no key has a gradient.
  Config config = small_run(folder, 2, 2);
  config.model.sequence_length = 1;
  config.train.micro_batch_size = 2;
  verify_on(4, config);
  like_llama(config.model);
  verify_on(4, config);
  config.precision.compute = "bf16";
  verify_on(4, config);
}

TEST_CASE("rounding that Adam makes full steps of is verified") {
  const ShardFolder folder;
  Config config = small_run(folder, 2, 1);
  config.model.sequence_length = 1;
  config.optimizer.epsilon = 1e-30;
  config.learning_rate.peak = 0.5;  // every weight of a query and a key moves by this, in the direction of rounding
  verify_on(4, config);
  config.model.activation = "relu";
  verify_on(4, config);
  require_error(ErrorKind::numerics, {"the first that is off is final_norm.bias"},
                [&] { verify_on(4, config, "data"); });
}

namespace {

constexpr std::int64_t kTensorRows = 3, kTensorColumns = 4;

/// A whole tensor of these values.
TensorSlice slice_of(const std::string& name, const Shape& shape, std::vector<float>& values) {
  const auto count = static_cast<std::int64_t>(values.size());
  Shape origin = shape;
  for (int i = 0; i < origin.rank(); ++i) origin[i] = 0;
  return {name, shape, {origin, shape}, 0, count, Tensor(values.data(), {count}, DType::f32)};
}

WholeTensors small_reference() {
  std::vector<float> weight = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12}, query = {3, 4}, key = {1e-9f, 0};
  Backend backend = make_cpu_backend();
  std::vector<Parameter> records = {Parameter(Role::matrix), Parameter(Role::vector), Parameter(Role::vector)};
  records[0].name = "layers.0.mlp.up.weight";
  records[1].name = "layers.0.attention.query.bias";
  records[2].name = "layers.0.attention.key.bias";
  records[2].measured_by = 1;
  return WholeTensors::of_gradients({slice_of(records[0].name, {kTensorRows, kTensorColumns}, weight),
                                     slice_of(records[1].name, {2}, query), slice_of(records[2].name, {2}, key)},
                                    records, 1, *backend.device);
}

/// The matrix split by columns over two ranks, the biases whole on both; `spoil` may change a rank's values. With `set`
/// they are then set to the reference's.
std::vector<TensorDeviation> compare_two(const std::function<void(int rank, NamedValues& values)>& spoil,
                                         double unit = 1, bool set = false) {
  std::vector<TensorDeviation> result;
  run_as_threads(2, [&](Communicator& world) {
    const WholeTensors reference = small_reference();
    Backend backend = make_cpu_backend();
    const int rank = world.rank();
    const float first = rank == 0 ? 1.0f : 3.0f;
    NamedValues values = {{"layers.0.mlp.up.weight", {first, first + 1, first + 4, first + 5, first + 8, first + 9}},
                          {"layers.0.attention.query.bias", {3, 4}},
                          {"layers.0.attention.key.bias", {1e-9f, 0}}};
    spoil(rank, values);
    std::vector<TensorSlice> held;
    for (auto& [name, numbers] : values) {
      const auto count = static_cast<std::int64_t>(numbers.size());
      TensorSlice slice{name, {2}, {{0}, {2}}, 0, count};
      if (count == 6) slice = {name, {kTensorRows, kTensorColumns}, {{0, 2 * rank}, {kTensorRows, 2}}, 0, count};
      slice.value = Tensor(numbers.data(), {count}, DType::f32);
      held.push_back(slice);
    }
    const WholeTensors* const whole = rank == 0 ? &reference : nullptr;
    if (set) set_tensors(world, whole, held, 1 / unit, *backend.device);
    const auto differences = compare_tensors(world, whole, held, unit, *backend.device);
    if (rank == 0) result = differences;
  });
  return result;
}

}  // namespace

TEST_CASE("verify: gradients are compared where they lie with parts and copies") {
  const auto nothing = [](int, NamedValues&) {};
  auto differences = compare_two(nothing);
  REQUIRE(differences.size() == 3);
  for (const TensorDeviation& difference : differences) CHECK(difference.relative == 0);
  CHECK(differences[0].scale == Approx(std::sqrt(650.0)));

  differences = compare_two([](int rank, NamedValues& values) {
    if (rank == 1) values["layers.0.mlp.up.weight"][5] += 0.5f;
  });
  CHECK(differences[0].relative == Approx(0.5 / std::sqrt(650.0)));
  CHECK(differences[0].rank == 1);

  // One rank's copy alone is wrong: not averaged away. The key's bias is judged by the query's.
  differences = compare_two([](int rank, NamedValues& values) {
    if (rank == 0) values["layers.0.attention.key.bias"][1] = 1e-3f;
  });
  CHECK(differences[2].relative == Approx(1e-3 / 5));
  CHECK(differences[2].rank == 0);

  differences = compare_two([](int rank, NamedValues& values) {
    if (rank == 1) values["layers.0.attention.query.bias"][0] = NAN;
  });
  CHECK(differences[1].relative == INFINITY);
  CHECK(differences[1].rank == 1);

  differences = compare_two(
      [](int, NamedValues& values) {
        for (auto& [name, numbers] : values) {
          for (float& number : numbers) number *= 1024;
        }
      },
      1.0 / 1024);
  for (const TensorDeviation& difference : differences) CHECK(difference.relative == 0);
}

TEST_CASE("tensors are set to the reference's wherever they lie") {
  const auto spoil = [](int rank, NamedValues& values) {
    for (auto& [name, numbers] : values) {
      for (float& number : numbers) number = static_cast<float>(10 + rank);
    }
  };
  for (const TensorDeviation& difference : compare_two(spoil)) CHECK(difference.relative > 0.1);
  for (const double unit : {1.0, 1.0 / 1024}) {
    for (const TensorDeviation& difference : compare_two(spoil, unit, true)) CHECK(difference.relative == 0);
  }
}

TEST_CASE("parameters are judged by how far they have moved") {
  Backend backend = make_cpu_backend();
  std::vector<float> values = {3, 4};
  const std::vector<TensorSlice> slices = {slice_of("final_norm.gain", {2}, values)};
  WholeTensors whole = WholeTensors::of(slices, *backend.device);
  CHECK(whole.tensors[0].scale == Approx(5));
  values = {3.5f, 4};
  whole.move_to(slices, 0, *backend.device);
  CHECK(whole.tensors[0].scale == Approx(0.5));
  CHECK(whole.tensors[0].values == values);
  whole.move_to(slices, 1e-3, *backend.device);
  CHECK(whole.tensors[0].scale == Approx(1e-3 * std::hypot(3.5, 4)));
}

TEST_CASE("verify: missing or doubled or unknown gradients name the parameter") {
  const auto remove = [](const char* name, int of) {
    compare_two([=](int rank, NamedValues& values) {
      if (rank == of || of < 0) values.erase(name);
    });
  };
  require_error(ErrorKind::internal, {"element 0 of", "layers.0.attention.query.bias [2]", "by 0 ranks"},
                [&] { remove("layers.0.attention.query.bias", -1); });
  require_error(ErrorKind::internal, {"element 0 of", "layers.0.mlp.up.weight [3, 4]", "by 0 ranks"},
                [&] { remove("layers.0.mlp.up.weight", 0); });
  require_error(ErrorKind::internal, {"element 2 of", "layers.0.mlp.up.weight [3, 4]", "by 0 ranks, element 0 by 1"},
                [&] { remove("layers.0.mlp.up.weight", 1); });
  require_error(ErrorKind::internal, {"the parameter layers.1.attention.query.bias"}, [] {
    compare_two([](int rank, NamedValues& values) {
      if (rank == 1) values["layers.1.attention.query.bias"] = {1, 2};
    });
  });
  // As many elements as there are, but not all of them: both ranks have the first half, or each a quarter twice.
  const auto both = [](const std::vector<std::int64_t>& firsts) {
    run_as_threads(2, [&](Communicator& world) {
      WholeTensors reference;
      reference.tensors.push_back({"final_norm.gain", {4}, {1, 2, 3, 4}, 1});
      Backend backend = make_cpu_backend();
      std::vector<float> values = {1, 2, 3, 4};
      std::vector<TensorSlice> held;
      for (const std::int64_t first : firsts) {
        const std::int64_t at = first >= 0 ? first : 2 * world.rank();
        held.push_back({"final_norm.gain", {4}, {{0}, {4}}, at, 2});
        held.back().value = Tensor(values.data() + at, {2}, DType::f32);
      }
      compare_tensors(world, world.rank() == 0 ? &reference : nullptr, held, 1, *backend.device);
    });
  };
  CHECK_NOTHROW(both({-1}));
  CHECK_NOTHROW(both({0, 2}));
  require_error(ErrorKind::internal, {"element 2 of", "final_norm.gain", "by 0 ranks, element 0 by 2"},
                [&] { both({0}); });
  require_error(ErrorKind::internal, {"element 0 of", "final_norm.gain", "by one rank twice"}, [&] { both({-1, -1}); });
}

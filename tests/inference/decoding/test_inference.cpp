// A model that only runs forward: which memory its weights take, and its numbers in the precision that was chosen.
#include <algorithm>
#include <cmath>

#include "backend/ops/backends.h"
#include "distributed/comm/thread_communicator.h"
#include "inference/decoding/inference_model.h"
#include "support/catch.h"
#include "support/loop_on_threads.h"
#include "support/worst_of.h"

using namespace megatron;
using namespace megatron::test;

namespace {

struct Answer {
  std::size_t bytes = 0;
  std::vector<float> logits;
};

Answer answer(const std::string& run, DType type, bool separate) {
  Answer result;
  run_as_threads(1, [&](Communicator& world) {
    std::vector<std::string> warnings;
    const CheckpointReader checkpoint = open_named_checkpoint(world, run, warnings);
    Compute compute{
        .backend = separate ? make_separate_backend() : make_cpu_backend(), .transport = {}, .description = {}};
    compute.transport = staged_transport(world, *compute.backend.device);
    InferenceModel model(config_for_inference(checkpoint), world, std::move(compute), type);
    model.load(world, checkpoint);
    result.bytes = model.weight_bytes();
    model.logits(std::vector<std::int32_t>{3, 1, 4, 1, 5, 9, 2, 6}, 0, result.logits);
  });
  return result;
}

}  // namespace

TEST_CASE("inference: a run whose ranks shared in sets is loaded by one") {
  const ShardFolder folder;
  Config config = tiny_config();
  config.parallel.data = 4;
  config.optimizer.share = "state";
  config.optimizer.share_within = 2;
  config.data.train = make_corpus(folder);
  config.run.directory = folder.file("run");
  config.train.steps = 1;
  run_loop(config);
  CHECK_FALSE(answer(config.run.directory, DType::f32, false).logits.empty());
}

TEST_CASE("inference: experts are chosen with the biases of the checkpoint") {
  const ShardFolder folder;
  Config config = tiny_config();
  with_balanced_experts(config.model);
  config.model.moe.bias_rate = 2;  // more than any probability: it decides alone
  config.parallel.pipeline = 2;
  config.data.train = make_corpus(folder);
  config.run.directory = folder.file("run");
  config.train.steps = 3;
  run_loop(config);
  run_as_threads(1, [&](Communicator& world) {
    std::vector<std::string> warnings;
    const CheckpointReader checkpoint = open_named_checkpoint(world, config.run.directory, warnings);
    InferenceModel model(config_for_inference(checkpoint), world,
                         {.backend = make_cpu_backend(), .transport = {}, .description = {}});
    model.load(world, checkpoint);
    const std::vector<std::int32_t> tokens = {3, 1, 4, 1, 5, 9, 2, 6};
    std::vector<float> with, without;
    model.logits(tokens, 0, with);
    int biases = 0;
    for (const TensorSlice& slice : model.values()) {
      if (!slice.name.ends_with(".moe.router.choice_bias")) continue;
      ++biases;
      bool moved = false;
      for (std::int64_t i = 0; i < slice.count; ++i) {
        float& number = slice.value.as<float>()[i];
        CHECK((number == 0 || std::fmod(std::abs(number), 2.0f) == 0));
        moved = moved || number != 0;
        number = 0;
      }
      CHECK(moved);
    }
    CHECK(biases == 2);
    model.logits(tokens, 0, without);
    CHECK(with != without);
  });
  const Answer full = answer(config.run.directory, DType::f32, false);
  CHECK(answer(config.run.directory, DType::f32, true).logits == full.logits);
  // The weights are half as large, the biases are what they were.
  const std::size_t states = 2 * 16 * sizeof(float);  // for two layers, each padded to 16 numbers
  CHECK(2 * (answer(config.run.directory, DType::bf16, true).bytes - states) == full.bytes - states);
}

TEST_CASE("inference: weights take their precision's bytes and have no gradients") {
  const ShardFolder folder;
  Config config = tiny_config();
  config.parallel.tensor = config.parallel.pipeline = 2;
  config.data.train = make_corpus(folder);
  config.run.directory = folder.file("run");
  config.train.steps = 3;
  run_loop(config);

  const Answer full = answer(config.run.directory, DType::f32, false);
  REQUIRE(full.logits.size() > 100);
  const float largest = std::abs(*std::max_element(full.logits.begin(), full.logits.end(),
                                                   [](float a, float b) { return std::abs(a) < std::abs(b); }));
  for (const auto& [type, rounding] : {std::pair(DType::bf16, 1.0f / 128), std::pair(DType::f16, 1.0f / 1024)}) {
    CAPTURE(name_of(type));
    const Answer half = answer(config.run.directory, type, false);
    CHECK(half.bytes * 2 == full.bytes);  // there are no constants, which would stay f32
    REQUIRE(half.logits.size() == full.logits.size());
    double worst = 0;
    for (std::size_t i = 0; i < full.logits.size(); ++i) {
      worst = worst_of(worst, std::abs(half.logits[i] - full.logits[i]));
    }
    CHECK(worst > 0);
    CHECK(worst < 10 * rounding * largest);
    CHECK(answer(config.run.directory, type, true).logits == half.logits);
  }
}

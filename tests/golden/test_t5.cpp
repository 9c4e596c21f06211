// T5 against PyTorch's autograd in float64: the loss and every gradient, in Megatron's flavour and in both of Hugging
// Face's, on one rank and on layouts. The script that made the files compares its formulas with transformers' models.
#include <cmath>

#include "golden/golden_step.h"
#include "support/catch.h"

using namespace megatron;
using namespace megatron::test;

namespace {

const std::vector<std::string> kModels = {"tiny_t5", "tiny_t5_relative", "tiny_t5_gated"};

Golden read_model(const std::string& name) {
  return read_golden(MEGATRON_GOLDEN_FOLDER "/" + name + ".h5");
}

}  // namespace

TEST_CASE("T5: loss and gradients are PyTorch's on one rank and on layouts") {
  const std::string name = GENERATE(from_range(kModels));
  const Golden golden = read_model(name);
  // 2 layers of the encoder and 3 of the decoder: the split is at the end of a stage, inside one, and inside a chunk.
  for (const GoldenLayout& layout : std::vector<GoldenLayout>{
           {.micro_batch = 4},
           {},
           {.tensor = 2, .micro_batch = 4},
           {.data = 2, .micro_batch = 2},
           {.tensor = 4, .pipeline = 2, .layers_per_stage = {1, 4}},
           {.pipeline = 4, .layers_per_stage = {1, 1, 2, 1}},
           {.pipeline = 5, .schedule = "gpipe"},
           {.pipeline = 2, .data = 2, .schedule = "zero_bubble", .layers_per_stage = {2, 3}},
           {.pipeline = 2, .schedule = "interleaved", .virtual_stages = 2, .layers_per_stage = {1, 2, 1, 1}},
           {.tensor = 2, .pipeline = 2, .recompute = true, .layers_per_stage = {3, 2}},
       }) {
    INFO(name << ": " << in_words(layout));
    check_golden_step(golden, run_golden_step(golden, layout), kGoldenTolerance);
  }
}

TEST_CASE("T5: sequence parallelism computes PyTorch's gradients too") {
  const std::string name = GENERATE("tiny_t5", "tiny_t5_relative");  // whose lengths are multiples of 4
  const Golden golden = read_model(name);
  for (const GoldenLayout& layout : std::vector<GoldenLayout>{
           {.tensor = 2, .micro_batch = 2, .sequence_parallel = true},
           {.tensor = 4, .pipeline = 2, .sequence_parallel = true, .recompute = true, .layers_per_stage = {2, 3}},
       }) {
    INFO(name << ": " << in_words(layout));
    check_golden_step(golden, run_golden_step(golden, layout), kGoldenTolerance);
  }
}

TEST_CASE("T5: the golden files show which tokens must be seen and count") {
  const std::string name = GENERATE(from_range(kModels));
  const Golden golden = read_model(name);
  const auto loss_with = [&](const auto& change) {
    Golden changed = golden;
    change(changed.batch);
    return run_golden_step(changed, {.micro_batch = 4}).loss;
  };
  const auto other = [&](double loss) { return std::abs(loss - golden.loss) > 10 * kGoldenTolerance * golden.loss; };
  constexpr int kSamples = 4;
  const auto at = [](std::size_t row, std::size_t sample) { return row * kSamples + sample; };
  const auto exchange = [](int& token) { token = (token + 1) % 50; };
  CHECK(other(loss_with([](GoldenBatch& batch) { --batch.encoder_lengths[2]; })));
  CHECK(other(loss_with([](GoldenBatch& batch) { ++batch.encoder_lengths[2]; })));
  CHECK(other(loss_with([&](GoldenBatch& batch) { exchange(batch.encoder_tokens[at(8, 2)]); })));
  CHECK(other(loss_with([&](GoldenBatch& batch) { exchange(batch.tokens[at(0, 1)]); })));
  // Sample 2 has 9 tokens in the encoder, sample 3 one target.
  CHECK(loss_with([&](GoldenBatch& batch) { exchange(batch.encoder_tokens[at(9, 2)]); }) ==
        Approx(golden.loss).epsilon(kGoldenTolerance));
  CHECK(loss_with([&](GoldenBatch& batch) {
          exchange(batch.tokens[at(1, 3)]);
          exchange(batch.targets[at(1, 3)]);
        }) == Approx(golden.loss).epsilon(kGoldenTolerance));
}

#include "models/families/rotary.h"

#include <utility>

#include "support/catch.h"
#include "support/require_error.h"

using namespace megatron;
using namespace megatron::test;

namespace {

ModelConfig rotary_model_of(std::int64_t head_size, double fraction = 1, double base = 10000,
                            const RotaryScalingConfig& scaling = {}) {
  ModelConfig model;
  model.hidden_size = head_size;
  model.attention_heads = 1;
  model.rotary_fraction = fraction;
  model.rotary_base = base;
  model.rotary_scaling = scaling;
  return model;
}

void check(const std::vector<float>& frequencies, std::initializer_list<std::pair<std::size_t, double>> want) {
  for (const auto& [i, frequency] : want) {
    CAPTURE(i);
    CHECK(static_cast<double>(frequencies.at(i)) == Approx(frequency).epsilon(3e-7));
  }
}

}  // namespace

TEST_CASE("rotary: frequencies fall from 1 to nearly 1 / base") {
  const std::vector<float> whole = rotary_inverse_frequencies(rotary_model_of(8));
  REQUIRE(whole.size() == 4);
  check(whole, {{0, 1}, {1, 0.1}, {2, 0.01}, {3, 0.001}});
  const std::vector<float> quarter = rotary_inverse_frequencies(rotary_model_of(32, 0.25));
  CHECK(quarter == whole);  // by the turning channels' number, not the head's
  CHECK(rotary_inverse_frequencies(rotary_model_of(80, 0.4)).size() == 16);
}

// Hugging Face transformers 5.23, modeling_rope_utils, in f32.
TEST_CASE("scaled rotary frequencies are those of Hugging Face") {
  const RotaryScalingConfig linear{.type = "linear", .factor = 4};
  check(rotary_inverse_frequencies(rotary_model_of(128, 1, 10000, linear)),
        {{0, 0.25}, {1, 0.216491088}, {15, 0.0288695507}, {32, 0.00249999994}, {63, 2.88695483e-05}});
  const RotaryScalingConfig llama3{.type = "llama3", .factor = 8};
  const std::vector<float> llama = rotary_inverse_frequencies(rotary_model_of(128, 1, 500000, llama3));
  REQUIRE(llama.size() == 64);
  check(llama, {{0, 1},
                {1, 0.814617217},
                {15, 0.0461640507},
                {28, 0.00321144611},  // the last that is kept
                {29, 0.00216657063},
                {30, 0.00137189368},
                {31, 0.00085675146},
                {32, 0.000524846022},
                {33, 0.00031269365},
                {34, 0.000178507791},
                {35, 9.55621217e-05},  // the first that is divided by all of 8
                {40, 3.42810235e-05},
                {63, 3.06892588e-07}});
}

TEST_CASE("rotary: models that the rules refuse have no frequencies") {
  const auto refused = [](const ModelConfig& model, const char* part) {
    require_error(ErrorKind::internal, {part}, [&] { rotary_inverse_frequencies(model); });
  };
  for (const auto& [size, fraction] : {std::pair<std::int64_t, double>{6, 0.5}, {8, 0.1}, {8, 2}}) {
    refused(rotary_model_of(size, fraction), "channels");
  }
  refused(rotary_model_of(8, 1, 1), "base");
  refused(rotary_model_of(8, 1, 10000, {.type = "linear", .factor = 0}), "shortens");
  refused(rotary_model_of(8, 1, 10000, {.type = "llama3", .factor = 2, .low_frequency_factor = 4}), "range");
  refused(rotary_model_of(8, 1, 10000, {.type = "yarn", .factor = 2}), "no formula");
}

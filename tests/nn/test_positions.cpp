#include "nn/positions.h"

#include <catch2/catch.hpp>
#include <utility>

#include "base/error.h"
#include "support/require_error.h"

using namespace megatron;
using namespace megatron::test;

namespace {

void check(const std::vector<float>& frequencies, std::initializer_list<std::pair<std::size_t, double>> want) {
  for (const auto& [i, frequency] : want) {
    CAPTURE(i);
    CHECK(static_cast<double>(frequencies.at(i)) == Approx(frequency).epsilon(3e-7));
  }
}

}  // namespace

TEST_CASE("rotary frequencies fall from 1 to nearly 1 / base, over the channels that turn") {
  const std::vector<float> whole = rotary_inverse_frequencies(8, 1, 10000);
  REQUIRE(whole.size() == 4);
  check(whole, {{0, 1}, {1, 0.1}, {2, 0.01}, {3, 0.001}});
  const std::vector<float> quarter = rotary_inverse_frequencies(32, 0.25, 10000);
  CHECK(quarter == whole);  // by the turning channels' number, not the head's
  CHECK(rotary_inverse_frequencies(80, 0.4, 10000).size() == 16);
}

// Hugging Face transformers 5.23, modeling_rope_utils, in f32.
TEST_CASE("scaled rotary frequencies are those of Hugging Face") {
  const RotaryScaling linear{.kind = RotaryScaling::Kind::linear, .factor = 4};
  check(rotary_inverse_frequencies(128, 1, 10000, linear),
        {{0, 0.25}, {1, 0.216491088}, {15, 0.0288695507}, {32, 0.00249999994}, {63, 2.88695483e-05}});
  const RotaryScaling llama3{.kind = RotaryScaling::Kind::llama3, .factor = 8};
  const std::vector<float> llama = rotary_inverse_frequencies(128, 1, 500000, llama3);
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

TEST_CASE("rotary frequencies of nothing sensible are refused") {
  const auto refused = [](std::int64_t head, double fraction, double base, RotaryScaling scaling, const char* part) {
    require_error(ErrorKind::configuration, {part}, [&] { rotary_inverse_frequencies(head, fraction, base, scaling); });
  };
  refused(6, 0.5, 10000, {}, "3 channels");
  refused(8, 0.1, 10000, {}, "0 channels");
  refused(8, 2, 10000, {}, "16 channels");
  refused(8, 1, 0.5, {}, "rotary base 0.5");
  refused(8, 1, 10000, {.kind = RotaryScaling::Kind::linear, .factor = 0}, "rotary scaling by 0");
  refused(8, 1, 10000, {.kind = RotaryScaling::Kind::llama3, .low_frequency_factor = 4}, "low frequency factor 4");
}

// Hugging Face transformers 5.23, models/bloom.
TEST_CASE("ALiBi's slopes, of powers of two and of other numbers of heads") {
  CHECK(alibi_slopes(1) == std::vector<float>{0x1p-8f});
  CHECK(alibi_slopes(8) == std::vector<float>{0x1p-1f, 0x1p-2f, 0x1p-3f, 0x1p-4f, 0x1p-5f, 0x1p-6f, 0x1p-7f, 0x1p-8f});
  CHECK(alibi_slopes(3) == std::vector<float>{0x1p-4f, 0x1p-8f, 0x1p-2f});
  const std::vector<float> twelve = alibi_slopes(12);
  REQUIRE(twelve.size() == 12);
  check(twelve, {{7, 0x1p-8}, {8, 0.707106769}, {9, 0.353553385}, {10, 0.176776677}, {11, 0.0883883387}});
}

#include <cmath>
#include <string>

#include "base/core/error.h"
#include "support/catch.h"
#include "training/optimizer/learning_rate.h"

using namespace megatron;

namespace {

constexpr LearningRate published{
    .peak = 1.5e-4, .minimum = 1e-5, .warmup_length = 1000, .decay_length = 10000, .style = DecayStyle::cosine};

LearningRate with(DecayStyle style) {
  LearningRate rate = published;
  rate.style = style;
  return rate;
}

}  // namespace

TEST_CASE("the published cosine schedule at its corners") {
  CHECK(published.at(0) == 0);
  CHECK(published.at(500) == Approx(7.5e-5).epsilon(1e-12));
  CHECK(published.at(1000) == 1.5e-4);
  CHECK(published.at(5500) == Approx(8e-5).epsilon(1e-12));
  CHECK(published.at(10000) == 1e-5);
  CHECK(published.at(10001) == 1e-5);
  CHECK(published.at(std::int64_t{1} << 60) == 1e-5);
  // A quarter of the way: minimum + (peak − minimum) · (1 + √½) / 2.
  CHECK(published.at(3250) == Approx(1e-5 + 1.4e-4 * (1 + std::sqrt(0.5)) / 2).epsilon(1e-12));
}

TEST_CASE("linear, constant and inverse-square-root decay after the same warm-up") {
  for (const auto style : {DecayStyle::linear, DecayStyle::constant, DecayStyle::inverse_square_root}) {
    CHECK(with(style).at(0) == 0);
    CHECK(with(style).at(250) == Approx(3.75e-5).epsilon(1e-12));
    CHECK(with(style).at(1000) == 1.5e-4);
  }
  CHECK(with(DecayStyle::linear).at(5500) == Approx(8e-5).epsilon(1e-12));
  CHECK(with(DecayStyle::linear).at(7750) == Approx(4.5e-5).epsilon(1e-12));
  CHECK(with(DecayStyle::linear).at(10001) == 1e-5);
  CHECK(with(DecayStyle::constant).at(9999) == 1.5e-4);
  CHECK(with(DecayStyle::constant).at(1000000) == 1.5e-4);  // constant knows no end
  CHECK(with(DecayStyle::inverse_square_root).at(4000) == Approx(7.5e-5).epsilon(1e-12));
  CHECK(with(DecayStyle::inverse_square_root).at(9000) == Approx(5e-5).epsilon(1e-12));
  CHECK(with(DecayStyle::inverse_square_root).at(10001) == 1e-5);
  LearningRate floored = with(DecayStyle::inverse_square_root);
  floored.minimum = 1e-4;
  CHECK(floored.at(9000) == 1e-4);
}

TEST_CASE("warmup-stable-decay: stays at the peak until a decay in four shapes") {
  LearningRate rate = with(DecayStyle::warmup_stable_decay);
  rate.wsd_decay_length = 4000;
  const auto at = [&](WsdStyle style, std::int64_t samples) {
    rate.wsd_style = style;
    return rate.at(samples);
  };
  for (const auto style : {WsdStyle::linear, WsdStyle::cosine, WsdStyle::exponential, WsdStyle::minus_square_root}) {
    CHECK(at(style, 500) == Approx(7.5e-5).epsilon(1e-12));
    for (const std::int64_t samples : {1000, 3000, 6000}) CHECK(at(style, samples) == 1.5e-4);
    CHECK(at(style, 6001) < 1.5e-4);
    CHECK(at(style, 10000) == Approx(1e-5).epsilon(1e-12));
    CHECK(at(style, 10001) == 1e-5);
  }
  // A quarter, a half and three quarters of the way from 1.5e-4 to 1e-5, by hand.
  CHECK(at(WsdStyle::linear, 7000) == Approx(1e-5 + 1.4e-4 * 0.75).epsilon(1e-12));
  CHECK(at(WsdStyle::linear, 9000) == Approx(1e-5 + 1.4e-4 * 0.25).epsilon(1e-12));
  CHECK(at(WsdStyle::cosine, 7000) == Approx(1e-5 + 1.4e-4 * 0.8535533905932737).epsilon(1e-12));
  CHECK(at(WsdStyle::cosine, 8000) == Approx(8e-5).epsilon(1e-12));
  CHECK(at(WsdStyle::exponential, 8000) == Approx(1e-5 + 1.4e-4 * 0.41421356237309515).epsilon(1e-12));
  CHECK(at(WsdStyle::exponential, 9000) == Approx(1e-5 + 1.4e-4 * 0.18920711500272103).epsilon(1e-12));
  CHECK(at(WsdStyle::minus_square_root, 7000) == Approx(8e-5).epsilon(1e-12));
  CHECK(at(WsdStyle::minus_square_root, 9000) == Approx(1e-5 + 1.4e-4 * 0.1339745962155614).epsilon(1e-12));
  rate.warmup_length = 6000;  // no stable part at all
  CHECK(at(WsdStyle::linear, 6000) == 1.5e-4);
  CHECK(at(WsdStyle::linear, 8000) == Approx(8e-5).epsilon(1e-12));
}

TEST_CASE("learning rate: without warm-up the first update has nearly the peak") {
  for (const auto style :
       {DecayStyle::cosine, DecayStyle::linear, DecayStyle::constant, DecayStyle::inverse_square_root}) {
    const LearningRate rate{.peak = 1, .minimum = 0.1, .warmup_length = 0, .decay_length = 1000, .style = style};
    CHECK(rate.at(0) == 1);
    CHECK(rate.at(1) == Approx(1).epsilon(2e-3));
    double previous = 2;
    for (std::int64_t n = 1; n < 1100; ++n) {
      CHECK(rate.at(n) <= previous);
      CHECK(rate.at(n) >= 0.1);
      previous = rate.at(n);
    }
  }
}

TEST_CASE("learning rate: warm-up begins above zero and grows by the batch") {
  // Two updates of 48 samples: the first applies [0, 48) and uses at(48).
  CHECK(published.at(48) == Approx(1.5e-4 * 0.048).epsilon(1e-12));
  CHECK(published.at(96) == Approx(2 * published.at(48)).epsilon(1e-12));
}

TEST_CASE("a run shorter than its warm-up, or of no length, gives finite rates") {
  const LearningRate all_warmup{.peak = 1, .minimum = 0.5, .warmup_length = 100, .decay_length = 100};
  CHECK(all_warmup.at(100) == 1);
  CHECK(all_warmup.at(101) == 0.5);
  const LearningRate empty{.peak = 1, .minimum = 0.5};
  CHECK(std::isfinite(empty.at(0)));
  CHECK(empty.at(1) == 0.5);
}

TEST_CASE("learning rate: decay styles are found by name and others refused") {
  CHECK(decay_style("cosine") == DecayStyle::cosine);
  CHECK(decay_style("linear") == DecayStyle::linear);
  CHECK(decay_style("constant") == DecayStyle::constant);
  CHECK(decay_style("inverse_sqrt") == DecayStyle::inverse_square_root);
  CHECK(decay_style("wsd") == DecayStyle::warmup_stable_decay);
  CHECK(wsd_style("linear") == WsdStyle::linear);
  CHECK(wsd_style("cosine") == WsdStyle::cosine);
  CHECK(wsd_style("exponential") == WsdStyle::exponential);
  CHECK(wsd_style("minus_sqrt") == WsdStyle::minus_square_root);
  const auto refused = [](auto find, const char* name) {
    try {
      find(name);
      FAIL("accepted " << name);
    } catch (const Error& error) {
      CHECK(error.kind() == ErrorKind::configuration);
      CHECK(std::string(error.what()).find(name) != std::string::npos);
    }
  };
  refused(decay_style, "steps");
  refused(wsd_style, "sqrt");
}

#include "base/core/error.h"
#include "support/catch.h"
#include "training/optimizer/weight_decay.h"

using namespace megatron;

TEST_CASE("weight decay: goes from its start to its end over the run") {
  const WeightDecay constant{.start = 0.1, .end = 0.3, .run_samples = 1000};
  for (const std::int64_t samples : {0, 1, 500, 1000, 2000}) CHECK(constant.at(samples) == 0.1);

  const WeightDecay linear{.start = 0.1, .end = 0.3, .run_samples = 1000, .style = WeightDecayStyle::linear};
  CHECK(linear.at(0) == 0.1);
  CHECK(linear.at(250) == Approx(0.15).epsilon(1e-14));
  CHECK(linear.at(999) == Approx(0.2998).epsilon(1e-14));
  CHECK(linear.at(1000) == 0.3);
  CHECK(linear.at(5000) == 0.3);

  // c = (1 + cos π(1 − n/N)) / 2: slow at both ends.
  const WeightDecay cosine{.start = 0.1, .end = 0.3, .run_samples = 1000, .style = WeightDecayStyle::cosine};
  CHECK(cosine.at(0) == 0.1);
  CHECK(cosine.at(250) == Approx(0.1 + 0.2 * 0.14644660940672624).epsilon(1e-14));
  CHECK(cosine.at(500) == Approx(0.2).epsilon(1e-14));
  CHECK(cosine.at(750) == Approx(0.1 + 0.2 * 0.8535533905932737).epsilon(1e-14));
  CHECK(cosine.at(1000) == 0.3);

  const WeightDecay down{.start = 0.1, .end = 0, .run_samples = 10, .style = WeightDecayStyle::linear};
  CHECK(down.at(4) == Approx(0.06).epsilon(1e-14));
  CHECK(down.at(10) == 0);
  CHECK(WeightDecay{.start = 0.1, .style = WeightDecayStyle::cosine}.at(0) == 0);  // a run of no length is at its end
}

TEST_CASE("weight decay: styles are found by name and others refused") {
  CHECK(weight_decay_style("constant") == WeightDecayStyle::constant);
  CHECK(weight_decay_style("linear") == WeightDecayStyle::linear);
  CHECK(weight_decay_style("cosine") == WeightDecayStyle::cosine);
  try {
    weight_decay_style("wsd");
    FAIL("accepted wsd");
  } catch (const Error& error) {
    CHECK(error.kind() == ErrorKind::configuration);
  }
}

// Evaluations between the steps of every schedule, which the parity table (tests/parity/rows.cpp) does not look at:
// they take chunks through slots that training uses otherwise.
#include "support/catch.h"
#include "support/tiny_training.h"

using namespace megatron;
using namespace megatron::test;

namespace {

/// Losses of evaluations before and after a training step.
std::vector<double> evaluations(const char* schedule, int pipeline, std::int64_t chunks, std::int64_t micro_batch = 1) {
  Config config = tiny_config();
  config.parallel.pipeline = pipeline;
  config.parallel.schedule = schedule;
  config.parallel.virtual_stages = chunks;
  config.train.micro_batch_size = micro_batch;
  return evaluate_tiny(config);
}

}  // namespace

TEST_CASE("every schedule's evaluation is that of one rank") {
  const std::vector<double> one = evaluations("1f1b", 1, 1);
  REQUIRE(one[0] != one[1]);
  for (const auto& losses :
       {evaluations("1f1b", 2, 1), evaluations("zero_bubble", 4, 1), evaluations("interleaved", 2, 2),
        evaluations("interleaved", 4, 1), evaluations("interleaved", 2, 2, 8), evaluations("interleaved", 2, 2, 4)}) {
    CHECK(losses[0] == Approx(one[0]).epsilon(1e-6));
    CHECK(losses[1] == Approx(one[1]).epsilon(1e-6));
  }
}

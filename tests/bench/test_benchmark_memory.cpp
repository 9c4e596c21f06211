// The table of options says what each is for: less of what it is about, and nothing more of the rest than it must.
#include "bench/benchmark_memory.h"
#include "support/catch.h"

using namespace megatron;

TEST_CASE("each option takes less of what it is about") {
  const std::vector<MemoryCase> cases = memory_cases();
  const auto of = [&](const std::string& option) -> const MemoryPlan& {
    for (const MemoryCase& one : cases) {
      if (one.option == option) return one.plan;
    }
    FAIL("no option " << option);
    return cases.front().plan;
  };
  const MemoryPlan& none = of("none");
  CHECK(of("sequence_parallel").activations < none.activations);
  CHECK(of("recompute selective").total() == none.total());
  CHECK(of("recompute full").activations < of("recompute full, 3 of 6 layers").activations);
  CHECK(of("recompute full, 3 of 6 layers").activations < none.activations);
  CHECK(of("bf16").weights * 2 == none.weights);
  CHECK(of("bf16").optimizer > none.optimizer);  // the fp32 copy
  CHECK(of("distributed optimizer").optimizer * 100 < none.optimizer * 51);
  CHECK(of("distributed optimizer").gradients == Approx(none.gradients).epsilon(1e-3));  // stage 1: padding alone
  CHECK(of("gpipe").activations > none.activations);
  CHECK(of("zero_bubble").activations >= none.activations);
  CHECK(of("interleaved, 3 chunks").activations > none.activations);
  CHECK(of("the same, recompute full").total() < of("the guide's together").total());
  CHECK(of("the guide's together").total() * 10 < none.total() * 6);

  const std::string table = describe(cases);
  for (const MemoryCase& one : cases) CHECK(table.find(one.option) != std::string::npos);
  CHECK(to_json(cases.front()).find("\"total\":" + std::to_string(none.total())) != std::string::npos);
}

// The table of options says what each is for: less of what it is about, and nothing more of the rest than it must.
#include "planning/bench/comparisons.h"
#include "support/catch.h"

using namespace megatron;

TEST_CASE("each option takes less of what it is about") {
  const Report report = plan_memory_cases();
  const auto of = [&](const std::string& option, const char* part) {
    for (const nlohmann::json& row : report.rows) {
      if (row.at("option") == option) return row.at(part).get<std::int64_t>();
    }
    FAIL("no option " << option);
    return std::int64_t{};
  };
  const auto none = [&](const char* part) { return of("none", part); };
  CHECK(of("sequence_parallel", "activations") < none("activations"));
  CHECK(of("recompute norms", "activations") < none("activations"));
  CHECK(of("recompute activations", "activations") < none("activations"));
  CHECK(of("recompute feed_forward", "activations") < of("recompute activations", "activations"));
  CHECK(none("activations") - of("recompute selective", "activations") ==
        2 * none("activations") - of("recompute norms", "activations") - of("recompute activations", "activations"));
  CHECK(of("recompute full", "activations") < of("recompute full, 3 of 6 layers", "activations"));
  CHECK(of("recompute full, 3 of 6 layers", "activations") < none("activations"));
  CHECK(of("bf16", "weights") * 2 == none("weights"));
  CHECK(of("bf16", "optimizer") > none("optimizer"));  // the fp32 copy
  CHECK(of("distributed optimizer", "optimizer") * 100 < none("optimizer") * 51);
  // Stage 1: padding alone.
  CHECK(of("distributed optimizer", "gradients") == Approx(none("gradients")).epsilon(1e-3));
  CHECK(of("gpipe", "activations") > none("activations"));
  CHECK(of("zero_bubble", "activations") >= none("activations"));
  CHECK(of("interleaved, 3 chunks", "activations") > none("activations"));
  CHECK(of("the same, recompute full", "total") < of("the guide's together", "total"));
  CHECK(of("the guide's together", "total") * 10 < none("total") * 6);
  for (const nlohmann::json& row : report.rows) CHECK_THAT(report.text, Contains(row.at("option").get<std::string>()));
}

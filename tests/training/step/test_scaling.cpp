// optimizer.scaling = "mup": at the base's width a run has the bits of one without, at another it learns another model.
#include "support/catch.h"
#include "support/tiny_training.h"

using namespace megatron;
using namespace megatron::test;

namespace {

using Variant = void (*)(ModelConfig&);

TrainingTrace trained(const Variant variant, const char* rule, std::int64_t base) {
  Config config = tiny_config();
  if (variant != nullptr) variant(config.model);
  config.optimizer.name = rule;
  if (base > 0) config.optimizer.scaling = "mup";
  config.model.base_hidden_size = base;
  return train_tiny(config, 1, 1, 1, 2);
}

}  // namespace

TEST_CASE("mup: at the base's width a run has the bits of one without", "[train]") {
  const Variant variant =
      GENERATE(static_cast<Variant>(nullptr), like_llama, with_parallel_parts, like_bert, like_t5, with_shared_experts);
  const std::int64_t width = tiny_config().model.hidden_size;
  for (const char* rule : {"adamw", "sgd", "muon"}) {
    CAPTURE(rule);
    const TrainingTrace plain = trained(variant, rule, 0), base = trained(variant, rule, width);
    CHECK(base.losses == plain.losses);
    CHECK(base.norms == plain.norms);
    CHECK(base.parameters == plain.parameters);
  }
  CHECK_FALSE(trained(variant, "adamw", width / 2).losses == trained(variant, "adamw", 0).losses);
}

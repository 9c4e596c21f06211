// The published formulas against their published values, and our own plan against them where the difference is known.
#include "planning/dry_run/analytic_memory.h"
#include "support/catch.h"
#include "support/tiny_training.h"
#include "training/step/grid.h"

using namespace megatron;
using namespace megatron::test;

namespace {

Config gpt(std::int64_t layers, std::int64_t hidden, std::int64_t heads, std::int64_t tensor, std::int64_t pipeline) {
  Config config;
  ModelConfig& model = config.model;
  model.layers = layers;
  model.hidden_size = hidden;
  model.attention_heads = model.query_groups = heads;
  model.ffn_hidden_size = 4 * hidden;
  model.sequence_length = model.max_position_embeddings = 2048;
  model.vocab_size = model.vocab_multiple = 51200;
  config.parallel.tensor = tensor;
  config.parallel.pipeline = pipeline;
  config.parallel.data = 1;
  config.train.global_batch_size = 64;
  config.precision.compute = "bf16";
  return config;
}

double layer_bytes(Config config, bool sequence_parallel, const char* mode = "none") {
  config.parallel.sequence_parallel = sequence_parallel;
  config.recompute.mode = mode;
  return analytic_memory(config).layer_bytes;
}

}  // namespace

TEST_CASE("published activations: scores are 70 and 65 % of GPT-3 and MT-NLG") {
  const Config gpt3 = gpt(96, 12288, 96, 8, 8), nlg = gpt(105, 20480, 128, 8, 35);
  const double sbh = 2048.0 * 12288;
  CHECK(layer_bytes(gpt(96, 12288, 96, 1, 8), false) == Approx(sbh * (34 + 80)));
  CHECK(layer_bytes(gpt3, false) == Approx(sbh * (10 + 24.0 / 8 + 80.0 / 8)));
  CHECK(layer_bytes(gpt3, true) == Approx(sbh * (34 + 80) / 8));
  CHECK(1 - 34 * sbh / 8 / layer_bytes(gpt3, true) == Approx(0.70).margin(0.005));
  CHECK(1 - 34 * 2048.0 * 20480 / 8 / layer_bytes(nlg, true) == Approx(0.65).margin(0.005));
  // Without scores, norms' outputs (4) and GELU's (8).
  CHECK(layer_bytes(gpt3, true, "selective") == Approx(22 * sbh / 8));
  CHECK(layer_bytes(gpt3, false, "selective") == Approx(sbh * (6 + 16.0 / 8)));
}

TEST_CASE("published activations: the first stage holds all layers' worth") {
  Config config = gpt(96, 12288, 96, 8, 8);
  config.parallel.sequence_parallel = true;
  const double sbh = 2048.0 * 12288, layer = sbh * (34 + 80) / 8, embedding = (8 * 2048 + sbh) / 8;
  CHECK(analytic_memory(config).activations == Approx(96 * layer + 8 * embedding));
  config.train.global_batch_size = 4;  // fewer micro-batches than stages
  CHECK(analytic_memory(config).activations == Approx(48 * layer + 4 * embedding));
  config.train.global_batch_size = 64;
  config.parallel.virtual_stages = 3;
  config.parallel.schedule = "interleaved";
  CHECK(analytic_memory(config).activations == Approx((96 * layer + 8 * embedding) * (1 + 7.0 / 24)));
  config.parallel.virtual_stages = 1;
  config.parallel.schedule = "1f1b";
  config.recompute = {"full", 4};  // 4 of a stage's 12 layers
  CHECK(analytic_memory(config).activations == Approx(8 * (8 * layer + 4 * 2 * sbh / 8 + embedding)));
  config.parallel.pipeline = 1;
  config.recompute = {};
  CHECK(analytic_memory(config).activations == Approx(96 * layer + embedding + 4 * sbh * (1 + 51200.0 / 12288) / 8));
  config.model.head_chunks = 2;  // logits are in scratch
  CHECK(analytic_memory(config).activations == Approx(96 * layer + embedding + 4 * sbh / 8));
}

TEST_CASE("published activations of a task: all columns, no logits") {
  Config config = gpt(2, 256, 4, 1, 1);
  config.model.family = "bert";
  config.train.micro_batch_size = 2;
  config.model.task_outputs = 1;
  config.model.task_choices = 4;
  const double sb = 2048.0 * 2 * 4, layer = sb * 256 * (34 + 5 * 4 * 2048.0 / 256);
  CHECK(analytic_memory(config).layer_bytes == Approx(layer));
  CHECK(analytic_memory(config).activations == Approx(2 * layer + (8 * sb + sb * 256) + 2 * sb * 256));
}

TEST_CASE("published memory: ours for bf16 except masks that we do not keep") {
  Config config = gpt(2, 256, 4, 1, 1);
  config.train.micro_batch_size = 2;
  const MemoryPlan two = plan_memory(config, {}, {});
  CHECK(analytic_memory(config).bytes_per_parameter == 18);
  CHECK(two.weights + two.gradients + two.optimizer ==
        Approx(18.0 * static_cast<double>(two.parameters)).epsilon(1e-3));  // alignment gaps

  const double tokens = 2048 * 2, masks = 2 * tokens * 256, statistics = tokens * (4 * 4.0 + 4 * 4);
  const auto of_layers = [&](std::int64_t layers) {
    config.model.layers = layers;
    return static_cast<double>(plan_memory(config, {}, {}).activations);
  };
  const double scores = 5 * 4 * 2048.0 * tokens;  // we keep none
  CHECK(of_layers(3) - of_layers(2) == analytic_memory(config).layer_bytes - scores - masks + statistics);
  using Part = RecomputePart;
  for (const RecomputeParts& parts : {RecomputeParts{Part::norms},
                                      {Part::activations},
                                      {Part::feed_forward},
                                      {Part::norms, Part::activations},
                                      {Part::norms, Part::feed_forward}}) {
    config.recompute = {.mode = "selective", .parts = parts};
    CHECK(of_layers(3) - of_layers(2) == analytic_memory(config).layer_bytes - masks + statistics);
  }

  config.optimizer.share = "state";
  config.parallel.data = 4;
  CHECK(analytic_memory(config).bytes_per_parameter == 9);
  config.optimizer.share = "gradients";
  CHECK(analytic_memory(config).bytes_per_parameter == 6);
  config.optimizer.share = "weights";
  CHECK(analytic_memory(config).bytes_per_parameter == 4.5);
  config.optimizer.share = "state";
  config.optimizer.moments_dtype = "bf16";
  CHECK(analytic_memory(config).bytes_per_parameter == 8);
}

TEST_CASE("plan: published numbers are printed next to ours with the reasons") {
  Config config = tiny_config();
  const auto text = [&] { return compare_with_analytic(config, plan_memory(config, {}, {})); };
  CHECK(text().find("s b h (34 + 5 a s / h)") != std::string::npos);
  CHECK(text().find("fp32 activations") != std::string::npos);
  CHECK(text().find("no attention scores are kept") != std::string::npos);
  CHECK(text().find("delayed weight gradients") == std::string::npos);
  config.parallel.pipeline = 2;
  config.parallel.schedule = "zero_bubble";
  CHECK(compare_with_analytic(config, plan_memory(config, grid_shape(config), {})).find("delayed weight gradients") !=
        std::string::npos);
  config.parallel.pipeline = 1;
  config.parallel.schedule = "1f1b";
  config.recompute.mode = "full";
  config.precision.compute = "bf16";
  CHECK(text().find("no attention scores") == std::string::npos);
  CHECK(text().find("fp32") == std::string::npos);
  CHECK(text().find("recomputed activations are in scratch") != std::string::npos);
}

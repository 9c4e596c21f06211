// Records of parameters, by name: their role, whether weight decay applies, and the layer that the forward pass has
// come to where it first uses them.
#include <map>
#include <type_traits>

#include "models/families/each_rank.h"
#include "support/catch.h"
#include "support/model_sizes.h"

using namespace megatron;
using namespace megatron::test;

namespace {

Config one_layer(const char* family) {
  Config config;
  config.model = model_of({.layers = 1, .hidden = 16, .heads = 4, .ffn = 24, .sequence = 8});
  config.model.family = family;
  config.train.micro_batch_size = 3;
  return config;
}

/// One expert per token of one, in every layer.
Config with_experts(const char* family) {
  Config config = one_layer(family);
  config.model.bias = false;
  config.model.normalization = "rmsnorm";
  config.model.moe.experts = config.model.moe.top_k = 1;
  config.model.moe.ffn_hidden_size = 8;
  return config;
}

std::string in_words(const Parameter& parameter) {
  const std::string layer = parameter.layer == kBeforeLayers  ? "before"
                            : parameter.layer == kAfterLayers ? "after"
                                                              : std::to_string(parameter.layer);
  return fmt::format("{} {} {} {}\n", parameter.name, name_of(parameter.role), parameter.decays() ? "decay" : "-",
                     layer);
}

/// A line for each parameter in the order of declaration, then one for each state. Decay is that of every matrix, and
/// of nothing else; ranks say the same of what they hold.
std::string role_lines(Config config) {
  std::map<std::string, std::string> lines;
  std::string whole;
  for_each_rank(config, [&](const ParameterStore& store, const Stages&, const GridCoordinates&) {
    const auto add = [&](const Parameter& parameter) {
      CHECK(parameter.decays() == (parameter.global_shape.rank() == 2));
      whole += lines[parameter.name] = in_words(parameter);
    };
    for (const Parameter& parameter : store.all()) add(parameter);
    for (const ModelState& state : store.states()) add(state);
  });
  config.parallel.tensor = 2;
  config.parallel.pipeline = config.model.has_decoder() ? 2 : 1;
  config.parallel.sequence_parallel = true;
  for_each_rank(config, [&](const ParameterStore& store, const Stages&, const GridCoordinates&) {
    for (const Parameter& parameter : store.all()) CHECK(in_words(parameter) == lines.at(parameter.name));
  });
  return "\n" + whole;
}

}  // namespace

TEST_CASE("roles: a GPT with a tied table, and norms and biases everywhere") {
  Config config = one_layer("gpt");
  config.model.embedding_norm = config.model.query_key_norm = config.model.head_bias = true;
  config.model.activation = "swiglu";
  CHECK(role_lines(config) == R"(
embedding.word.weight embedding decay before
embedding.position.weight embedding decay before
embedding.norm.weight norm - before
embedding.norm.bias norm - before
layers.0.attention_norm.weight norm - 0
layers.0.attention_norm.bias norm - 0
layers.0.attention.query_norm.weight norm - 0
layers.0.attention.key_norm.weight norm - 0
layers.0.attention.query.weight matrix decay 0
layers.0.attention.key.weight matrix decay 0
layers.0.attention.value.weight matrix decay 0
layers.0.attention.query.bias vector - 0
layers.0.attention.key.bias vector - 0
layers.0.attention.value.bias vector - 0
layers.0.attention.output.weight matrix decay 0
layers.0.attention.output.bias vector - 0
layers.0.mlp_norm.weight norm - 0
layers.0.mlp_norm.bias norm - 0
layers.0.mlp.gate.weight matrix decay 0
layers.0.mlp.up.weight matrix decay 0
layers.0.mlp.gate.bias vector - 0
layers.0.mlp.up.bias vector - 0
layers.0.mlp.down.weight matrix decay 0
layers.0.mlp.down.bias vector - 0
final_norm.weight norm - after
final_norm.bias norm - after
head.bias vector - after
)");
}

TEST_CASE("roles: a GPT with shared experts and an untied head") {
  Config config = with_experts("gpt");
  config.model.tie_embeddings = false;
  config.model.position_embedding = "rope";
  config.model.moe.bias_rate = 0.01;
  config.model.moe.shared_experts = 1;
  config.model.moe.shared_gate = true;
  CHECK(role_lines(config) == R"(
embedding.word.weight embedding decay before
layers.0.attention_norm.weight norm - 0
layers.0.attention.query.weight matrix decay 0
layers.0.attention.key.weight matrix decay 0
layers.0.attention.value.weight matrix decay 0
layers.0.attention.output.weight matrix decay 0
layers.0.mlp_norm.weight norm - 0
layers.0.moe.router.weight router decay 0
layers.0.moe.experts.0.up.weight matrix decay 0
layers.0.moe.experts.0.down.weight matrix decay 0
layers.0.moe.shared.up.weight matrix decay 0
layers.0.moe.shared.down.weight matrix decay 0
layers.0.moe.shared_gate.weight router decay 0
head.weight head decay after
final_norm.weight norm - after
layers.0.moe.router.choice_bias router - 0
)");
}

TEST_CASE("roles: experts with biases, mixed with a dense part") {
  Config config = with_experts("gpt");
  config.model.bias = true;
  config.model.position_embedding = "none";
  config.model.moe.residual = true;
  const std::string roles = role_lines(config);
  CHECK_THAT(roles, Contains(R"(
layers.0.moe.router.weight router decay 0
layers.0.moe.experts.0.up.weight matrix decay 0
layers.0.moe.experts.0.up.bias vector - 0
layers.0.moe.experts.0.down.weight matrix decay 0
layers.0.moe.experts.0.down.bias vector - 0
layers.0.moe.dense.up.weight matrix decay 0
layers.0.moe.dense.up.bias vector - 0
layers.0.moe.dense.down.weight matrix decay 0
layers.0.moe.dense.down.bias vector - 0
layers.0.moe.mix.weight router decay 0
layers.0.moe.mix.bias vector - 0
final_norm.weight norm - after
)"));
}

TEST_CASE("roles: BERT's heads for pretraining and for a task") {
  Config config = one_layer("bert");
  CHECK_THAT(role_lines(config), StartsWith(R"(
embedding.word.weight embedding decay before
embedding.position.weight embedding decay before
embedding.type.weight embedding decay before
layers.0.attention_norm.weight norm - 0
)") && EndsWith(R"(
final_norm.weight norm - after
final_norm.bias norm - after
head.dense.weight matrix decay after
head.dense.bias vector - after
head.norm.weight norm - after
head.norm.bias norm - after
head.bias vector - after
pooler.weight matrix decay after
pooler.bias vector - after
order_head.weight task_head decay after
order_head.bias task_head - after
)"));
  // A task begins with a pretrained pooler, and a new head alone.
  config.model.task_outputs = 3;
  CHECK_THAT(role_lines(config), EndsWith(R"(
final_norm.bias norm - after
pooler.weight matrix decay after
pooler.bias vector - after
task_head.weight task_head decay after
task_head.bias task_head - after
)"));
  config.model.task_outputs = 1;
  config.model.task_choices = 4;
  CHECK_THAT(role_lines(config), EndsWith("pooler.bias vector - after\ntask_head.weight task_head decay after\n"));
}

TEST_CASE("roles: T5's tables, and layers numbered over encoder and decoder") {
  Config config = one_layer("t5");
  config.model.layers = config.model.decoder_layers = 1;
  config.model.decoder_sequence_length = 4;
  config.model.position_embedding = "relative";
  config.model.relative_buckets = 8;
  config.model.bias = false;
  config.model.normalization = "rmsnorm";
  config.model.tie_embeddings = false;
  CHECK(role_lines(config) == R"(
embedding.word.weight embedding decay before
relative.encoder.weight embedding decay 0
relative.decoder.weight embedding decay 1
encoder.layers.0.attention_norm.weight norm - 0
encoder.layers.0.attention.query.weight matrix decay 0
encoder.layers.0.attention.key.weight matrix decay 0
encoder.layers.0.attention.value.weight matrix decay 0
encoder.layers.0.attention.output.weight matrix decay 0
encoder.layers.0.mlp_norm.weight norm - 0
encoder.layers.0.mlp.up.weight matrix decay 0
encoder.layers.0.mlp.down.weight matrix decay 0
encoder.final_norm.weight norm - 0
decoder.layers.0.attention_norm.weight norm - 1
decoder.layers.0.attention.query.weight matrix decay 1
decoder.layers.0.attention.key.weight matrix decay 1
decoder.layers.0.attention.value.weight matrix decay 1
decoder.layers.0.attention.output.weight matrix decay 1
decoder.layers.0.cross_attention_norm.weight norm - 1
decoder.layers.0.cross_attention.query.weight matrix decay 1
decoder.layers.0.cross_attention.key.weight matrix decay 1
decoder.layers.0.cross_attention.value.weight matrix decay 1
decoder.layers.0.cross_attention.output.weight matrix decay 1
decoder.layers.0.mlp_norm.weight norm - 1
decoder.layers.0.mlp.up.weight matrix decay 1
decoder.layers.0.mlp.down.weight matrix decay 1
head.weight head decay after
final_norm.weight norm - after
)");
  config.model.position_embedding = "learned";
  config.model.tie_embeddings = config.model.head_bias = true;
  CHECK_THAT(role_lines(config), StartsWith(R"(
embedding.word.weight embedding decay before
embedding.position.weight embedding decay before
encoder.layers.0.)") && EndsWith("final_norm.weight norm - after\nhead.bias vector - after\n"));
}

TEST_CASE("roles: a key's bias is measured by its query's in every attention") {
  Config config = one_layer("t5");
  config.model.decoder_layers = 1;
  config.model.decoder_sequence_length = 4;
  std::map<std::string, std::string> measured;
  for_each_rank(config, [&](const ParameterStore& store, const Stages&, const GridCoordinates&) {
    for (const Parameter& parameter : store.all()) {
      if (parameter.measured_by != kNone) measured[parameter.name] = store.at(parameter.measured_by).name;
    }
  });
  CHECK(measured == std::map<std::string, std::string>{
                        {"encoder.layers.0.attention.key.bias", "encoder.layers.0.attention.query.bias"},
                        {"decoder.layers.0.attention.key.bias", "decoder.layers.0.attention.query.bias"},
                        {"decoder.layers.0.cross_attention.key.bias", "decoder.layers.0.cross_attention.query.bias"}});
}

TEST_CASE("roles: a store takes only parameters whose role is given") {
  STATIC_REQUIRE_FALSE(std::is_default_constructible_v<Parameter>);
  STATIC_REQUIRE_FALSE(std::is_default_constructible_v<ModelState>);
}

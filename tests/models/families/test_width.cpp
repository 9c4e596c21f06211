// Changes that model.base_hidden_size makes to a model: initial weights by role, factors of logits and of attention
// scores.
#include <map>

#include "models/families/each_rank.h"
#include "models/families/layer_sizes.h"
#include "support/catch.h"
#include "support/tiny_training.h"

using namespace megatron;
using namespace megatron::test;

namespace {

using Variant = void (*)(ModelConfig&);

/// Initial deviations by name.
std::map<std::string, double> deviations_of(const Config& config) {
  std::map<std::string, double> deviations;
  for_each_rank(config, [&](const ParameterStore& store, const Stages&, const GridCoordinates&) {
    for (const Parameter& parameter : store.all()) deviations[parameter.name] = parameter.initialization.deviation;
  });
  return deviations;
}

std::map<std::string, Role> role_by_name(const Config& config) {
  std::map<std::string, Role> roles;
  for_each_rank(config, [&](const ParameterStore& store, const Stages&, const GridCoordinates&) {
    for (const Parameter& parameter : store.all()) roles.emplace(parameter.name, parameter.role);
  });
  return roles;
}

double factor_of(Role role) {
  return role == Role::matrix ? 0.5 : role == Role::router || role == Role::task_head ? 0.25 : 1;
}

float scale_of(const ModelConfig& model) {
  CountingCommunicator world(0, 1);
  const ProcessGrid grid(world, {});
  return attention_scale(block_sizes(model, grid, Sight::earlier).attention);
}

}  // namespace

TEST_CASE("width: initial weights follow from the role in every family") {
  const Variant variant = GENERATE(like_llama, with_parallel_parts, like_bert, like_megatron_bert, like_t5,
                                   like_megatron_t5, with_shared_experts, with_residual_experts);
  Config config = tiny_config();
  variant(config.model);
  Config wide = config;
  wide.model.base_hidden_size = config.model.hidden_size / 4;
  const auto plain = deviations_of(config), scaled = deviations_of(wide);
  const auto roles = role_by_name(config);
  for (const auto& [name, deviation] : plain) {
    CAPTURE(name);
    CHECK(scaled.at(name) == Approx(factor_of(roles.at(name)) * deviation).epsilon(1e-12));
  }
  wide.model.base_hidden_size = config.model.hidden_size;
  CHECK(deviations_of(wide) == plain);
}

TEST_CASE("width: logits are divided by the factor of the width") {
  ModelConfig model = tiny_config().model;
  CHECK(head_scale(model) == 1);
  model.base_hidden_size = model.hidden_size;
  CHECK(head_scale(model) == 1);
  model.base_hidden_size = model.hidden_size / 4;
  CHECK(head_scale(model) == 0.25);
  model.scale_head = true;  // by the base's root, since the width's is in the factor
  CHECK(head_scale(model) == Approx(0.25 / std::sqrt(static_cast<double>(model.base_hidden_size))));
  model.scale_embeddings = true;
  CHECK(embedding_sizes(model).scale == Approx(std::sqrt(static_cast<double>(model.base_hidden_size))));
}

TEST_CASE("width: scores are divided by the size of heads that grow") {
  ModelConfig model = tiny_config().model;  // head size 8
  const float plain = scale_of(model);
  model.base_hidden_size = 8;
  CHECK(scale_of(model) == plain);  // more heads of the same size
  model.base_head_size = 8;
  CHECK(scale_of(model) == plain);
  model.base_head_size = 2;
  CHECK(scale_of(model) == Approx(std::sqrt(2.0) / 8));
  model.attention_scale = "none";
  CHECK(scale_of(model) == Approx(2.0 / 8));
}

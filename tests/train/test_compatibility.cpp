// What a checkpoint says of its model, so that another model does not resume from it.
#include <catch2/catch.hpp>

#include "train/compatibility.h"

using namespace megatron;
using nlohmann::json;

namespace {

json facts_with(const std::function<void(ModelConfig&)>& change) {
  Config config;
  config.model.hidden_size = 32;
  config.model.attention_heads = 4;
  change(config.model);
  return model_signature(config, {});
}

}  // namespace

TEST_CASE("facts of a model: every key of its form changes them", "[train]") {
  const json plain = facts_with([](ModelConfig&) {});
  CHECK(plain.at("bias") == true);
  const std::pair<const char*, std::function<void(ModelConfig&)>> changes[] = {
      {"head_size", [](ModelConfig& model) { model.given_head_size = 10; }},
      {"attention_window", [](ModelConfig& model) { model.attention_window = 7; }},
      {"residual", [](ModelConfig& model) { model.residual = "parallel"; }},
      {"query_key_norm", [](ModelConfig& model) { model.query_key_norm = true; }},
      {"scale_embeddings", [](ModelConfig& model) { model.scale_embeddings = true; }},
      {"embedding_norm", [](ModelConfig& model) { model.embedding_norm = true; }},
      {"head_bias", [](ModelConfig& model) { model.head_bias = true; }},
  };
  for (const auto& [key, change] : changes) {
    CAPTURE(key);
    CHECK_FALSE(plain.contains(key));  // as in checkpoints of before there was the key
    CHECK(facts_with(change).contains(key));
  }
  CHECK(facts_with([](ModelConfig& model) { model.given_head_size = 8; }) == plain);  // what it is anyway
  CHECK(facts_with([](ModelConfig& model) { model.bias = false; }).at("bias") == false);
  CHECK(facts_with([](ModelConfig& model) { model.bias = {true, false, false}; }).at("bias") == "query_key_value");
}

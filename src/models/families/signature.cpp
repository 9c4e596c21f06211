#include "models/families/signature.h"

#include <algorithm>

#include "config/schema/print.h"
#include "config/schema/schema.h"
#include "config/schema/task.h"

namespace megatron {

namespace {

nlohmann::json value_of(const Key& key, Config& config) {
  return std::visit(
      [&](auto access) -> nlohmann::json {
        if constexpr (requires { nlohmann::json(access(config)); }) return access(config);
        return nlohmann::json::parse(print_value(key, config));
      },
      key.access);
}

/// Sets the facts of a table of the input file that the schema's rows ask for.
void add_facts(std::string_view table, const Config& config, nlohmann::json& facts) {
  Config given = config, defaults;
  for (const Key& key : schema()) {
    if (key.table != table || key.fact == Fact::none) continue;
    if (key.fact == Fact::unless_default && !differs(key, given, defaults)) continue;
    facts[key.name] = value_of(key, given);
  }
}

nlohmann::json moe_facts(const Config& config) {
  const MoeConfig& moe = config.model.moe;
  nlohmann::json facts;
  add_facts("moe", config, facts);
  if (moe.bias_rate > 0) facts["choice_bias"] = true;
  for (std::int64_t layer = 0; layer < std::max(config.model.layers, config.model.decoder_layers); ++layer) {
    if (moe.in_layer(layer)) facts["layers"].push_back(layer);
  }
  return facts;
}

}  // namespace

nlohmann::json decoder_signature(const Config& config) {
  const ModelConfig& model = config.model;
  nlohmann::json facts = {{"padded_vocab", model.padded_vocab()}};
  add_facts("model", config, facts);
  if (model.positions() == PositionEmbedding::rotary) {
    facts["rotary"] = {{"fraction", model.rotary_fraction},
                       {"base", model.rotary_base},
                       {"scaling", print_value(*find_key("model", "rotary_scaling"), config)}};
  }
  if (model.head_size() * model.attention_heads != model.hidden_size) facts["head_size"] = model.head_size();
  if (model.positions() == PositionEmbedding::relative) {
    facts["relative"] = {{"buckets", model.relative_buckets}, {"max_distance", model.relative_max_distance}};
  }
  if (model.moe.experts > 0) facts["moe"] = moe_facts(config);
  if (model.task_outputs > 0) {
    facts["task"] = {{"name", config.task.name}, {"labels", model.task_classes()}};
    if (config.task.name == "classification") facts["task"]["label_names"] = labels_of(config.task);
  }
  return facts;
}

nlohmann::json decoder_resume_signature(nlohmann::json facts) {
  if (facts.value("position_embedding", nlohmann::json()) != "learned") facts.erase("max_position_embeddings");
  return facts;
}

nlohmann::json decoder_weights_signature(nlohmann::json facts) {
  facts = decoder_resume_signature(std::move(facts));
  facts.erase("sequence_length");
  facts.erase("decoder_sequence_length");
  facts.erase("task");  // a new head
  if (const auto rotary = facts.find("rotary"); rotary != facts.end() && rotary->is_object()) {
    rotary->erase("base");
    rotary->erase("scaling");
  }
  return facts;
}

}  // namespace megatron

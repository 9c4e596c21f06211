#include "model/signature.h"

#include <algorithm>

#include "config/print.h"
#include "config/schema.h"
#include "config/task.h"

namespace megatron {

nlohmann::json decoder_signature(const Config& config) {
  const ModelConfig& model = config.model;
  nlohmann::json facts = {{"layers", model.layers},
                          {"hidden_size", model.hidden_size},
                          {"attention_heads", model.attention_heads},
                          {"query_groups", model.query_groups},
                          {"ffn_hidden_size", model.ffn_hidden_size},
                          {"sequence_length", model.sequence_length},
                          {"max_position_embeddings", model.max_position_embeddings},
                          {"vocab_size", model.vocab_size},
                          {"padded_vocab", model.padded_vocab()},
                          {"position_embedding", model.position_embedding},
                          {"activation", model.activation},
                          {"normalization", model.normalization},
                          {"norm_epsilon", model.norm_epsilon},
                          {"tie_embeddings", model.tie_embeddings},
                          {"bias", nlohmann::json::parse(print_value(*find_key("model", "bias"), config))}};
  if (model.position_embedding == "rope") {
    facts["rotary"] = {{"fraction", model.rotary_fraction},
                       {"base", model.rotary_base},
                       {"scaling", print_value(*find_key("model", "rotary_scaling"), config)}};
  }
  // Facts of what was not there always: where they are absent, the model is without.
  if (model.head_size() * model.attention_heads != model.hidden_size) facts["head_size"] = model.head_size();
  if (model.attention_window > 0) facts["attention_window"] = model.attention_window;
  if (model.residual != "sequential") facts["residual"] = model.residual;
  if (model.norm_position != "pre") facts["norm_position"] = model.norm_position;
  if (model.query_key_norm) facts["query_key_norm"] = true;
  if (model.scale_embeddings) facts["scale_embeddings"] = true;
  if (model.embedding_norm) facts["embedding_norm"] = true;
  if (model.head_bias) facts["head_bias"] = true;
  if (model.has_decoder()) {
    facts["decoder_layers"] = model.decoder_layers;
    facts["decoder_sequence_length"] = model.decoder_sequence_length;
  }
  if (model.position_embedding == "relative") {
    facts["relative"] = {{"buckets", model.relative_buckets}, {"max_distance", model.relative_max_distance}};
  }
  if (model.attention_scale != "head_size") facts["attention_scale"] = model.attention_scale;
  if (model.scale_head) facts["scale_head"] = true;
  if (const MoeConfig& moe = model.moe; moe.experts > 0) {
    facts["moe"] = {{"experts", moe.experts},
                    {"top_k", moe.top_k},
                    {"ffn_hidden_size", moe.ffn_hidden_size},
                    {"renormalize", moe.renormalize}};
    if (moe.bias_rate > 0) facts["moe"]["choice_bias"] = true;
    if (moe.shared_experts > 0) facts["moe"]["shared_experts"] = moe.shared_experts;
    if (moe.shared_gate) facts["moe"]["shared_gate"] = true;
    if (moe.residual) facts["moe"]["residual"] = true;
    for (std::int64_t layer = 0; layer < std::max(model.layers, model.decoder_layers); ++layer) {
      if (moe.in_layer(layer)) facts["moe"]["layers"].push_back(layer);
    }
  }
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

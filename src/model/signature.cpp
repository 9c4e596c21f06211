#include "model/signature.h"

#include "config/print.h"
#include "config/schema.h"

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
  return facts;
}

nlohmann::json decoder_resume_signature(nlohmann::json facts) {
  if (facts.value("position_embedding", nlohmann::json()) != "learned") facts.erase("max_position_embeddings");
  return facts;
}

nlohmann::json decoder_weights_signature(nlohmann::json facts) {
  facts = decoder_resume_signature(std::move(facts));
  facts.erase("sequence_length");
  if (const auto rotary = facts.find("rotary"); rotary != facts.end() && rotary->is_object()) {
    rotary->erase("base");
    rotary->erase("scaling");
  }
  return facts;
}

}  // namespace megatron

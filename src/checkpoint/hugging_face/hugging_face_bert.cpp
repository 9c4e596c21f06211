// Hugging Face's encoders: MegatronBert, with its norms before each part, and the original BERT, with norms after. Both
// with their heads for pretraining.
#include "checkpoint/hugging_face/hugging_face_families.h"

namespace megatron {

namespace {

void read_bert(const HuggingFaceKeys& keys, ModelConfig&) {
  for (const char* key : {"is_decoder", "add_cross_attention"}) keys.require(key, false);
  const std::string positions = keys.text("position_embedding_type");
  verify(positions == "absolute", ErrorKind::checkpoint,
         "\"position_embedding_type\": positions of type \"{}\" are not supported; absolute ones are", positions);
  verify(keys.size("type_vocab_size") == 2, ErrorKind::checkpoint,
         "\"type_vocab_size\" is {}: tokens are of 2 types here", keys.size("type_vocab_size"));
}

void write_bert(const ModelConfig&, nlohmann::json& config) {
  config.erase("use_cache");
}

const std::vector<std::string> kBertActivations = {"\"gelu\"", "\"gelu_exact\"", "\"relu\"", "\"tanh\""};

HuggingFaceFamily encoder(const char* name, const char* architecture, const ModelConfig& form) {
  return {.name = name,
          .architecture = architecture,
          .form = form,
          .free = {{"activation", kBertActivations}, {"tie_embeddings"}, {"head_bias"}},
          .sizes = {.epsilon = "layer_norm_eps",
                    .hidden_dropout = {"hidden_dropout_prob"},
                    .attention_dropout = "attention_probs_dropout_prob"},
          .defaults = hugging_face_defaults(name),
          .names = {.prefix = "bert.",
                    .word = "bert.embeddings.word_embeddings",
                    .position = "bert.embeddings.position_embeddings",
                    .layer = "bert.encoder.layer.",
                    .query = "attention.self.query",
                    .key = "attention.self.key",
                    .value = "attention.self.value",
                    .output = "attention.output.dense",
                    .up = "intermediate.dense",
                    .down = "output.dense",
                    .head = "cls.predictions.decoder"},
          .tensors = bert_tensors,
          .derived = {"bert.embeddings.position_ids"},
          .copies = {{"cls.predictions.decoder.bias", "cls.predictions.bias"}},
          .read = read_bert,
          .write = write_bert};
}

}  // namespace

HuggingFaceFamily hugging_face_megatron_bert() {
  ModelConfig form;
  form.family = "bert";
  form.activation = "gelu_exact";
  form.norm_epsilon = 1e-12;
  HuggingFaceFamily family = encoder("megatron-bert", "MegatronBertForPreTraining", form);
  family.names.attention_norm = "attention.ln";
  family.names.mlp_norm = "ln";
  family.names.final_norm = "bert.encoder.ln";
  return family;
}

HuggingFaceFamily hugging_face_bert() {
  ModelConfig form;
  form.family = "bert";
  form.norm_position = "post";
  form.embedding_norm = true;
  form.activation = "gelu_exact";
  form.norm_epsilon = 1e-12;
  HuggingFaceFamily family = encoder("bert", "BertForPreTraining", form);
  family.names.embedding_norm = "bert.embeddings.LayerNorm";
  family.names.attention_norm = "attention.output.LayerNorm";
  family.names.mlp_norm = "output.LayerNorm";
  return family;
}

}  // namespace megatron

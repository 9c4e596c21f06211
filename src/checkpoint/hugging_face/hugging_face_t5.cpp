// Hugging Face's T5: the original, whose head is tied and scaled, and 1.1 (also Flan-T5), with a gate and a head of its
// own; and mT5, which is of 1.1's form.
#include <algorithm>
#include <cstdlib>

#include "checkpoint/hugging_face/hugging_face_families.h"

namespace megatron {

namespace {

constexpr std::string_view kGated = "gated-";

/// Activations that files can name, as input files write them.
std::vector<std::string> activations_with_names() {
  std::vector<std::string> names;
  for (const ActivationRow& row : kActivations) {
    if (row.hugging_face != nullptr) names.push_back('"' + std::string(row.name) + '"');
  }
  return names;
}

/// As transformers reads it: "dense_act_fn" and "is_gated_act" if they are given, else "feed_forward_proj", whose
/// "gated-gelu" has the tanh form.
std::string activation_of(const HuggingFaceKeys& keys) {
  const std::string projection = keys.text("feed_forward_proj");
  const bool gated = keys.given("is_gated_act") ? keys.flag("is_gated_act") : projection.starts_with(kGated);
  std::string name = projection.starts_with(kGated) ? projection.substr(kGated.size()) : projection;
  if (projection == "gated-gelu") name = "gelu_new";
  if (keys.given("dense_act_fn")) name = keys.text("dense_act_fn");
  for (const ActivationRow& row : kActivations) {
    if (row.hugging_face != nullptr && row.gated == gated && same_hugging_face_activation(row.hugging_face, name)) {
      return std::string(row.name);
    }
  }
  fail(ErrorKind::checkpoint, "\"feed_forward_proj\": the activation \"{}\" is not supported{}", name,
       gated ? " with a gate" : "");
}

std::string projection_of(const ModelConfig& model) {
  const ActivationRow& row = row_named(kActivations, model.activation);
  if (row.activation == Activation::geglu) return "gated-gelu";
  return row.gated ? std::string(kGated) + row.hugging_face : row.hugging_face;
}

void read_encoder_decoder(const HuggingFaceKeys& keys, ModelConfig& model) {
  keys.require("is_decoder", false);
  keys.require("is_encoder_decoder", true);
  model.decoder_layers = keys.size("num_decoder_layers", model.layers);
  model.relative_buckets = keys.size("relative_attention_num_buckets");
  model.relative_max_distance = keys.size("relative_attention_max_distance");
  model.activation = activation_of(keys);
}

void read_t5(const HuggingFaceKeys& keys, ModelConfig& model) {
  read_encoder_decoder(keys, model);
  // transformers 4 has one key for both; 5 writes that it ties all heads, and says apart whether they are scaled.
  const char* scaled = "scale_decoder_outputs";
  model.scale_head = keys.given(scaled) ? keys.flag(scaled) : model.tie_embeddings;
}

/// transformers 5 writes that it ties all heads and scales none; 4 scales a tied one.
void read_mt5(const HuggingFaceKeys& keys, ModelConfig& model) {
  read_encoder_decoder(keys, model);
  const char* version = "transformers_version";
  const bool newer = keys.has(version) && std::atoi(keys.text(version).c_str()) >= 5;
  verify(!model.tie_embeddings || newer, ErrorKind::checkpoint,
         "\"tie_word_embeddings\": true is a scaled head in transformers 4, and none in 5, whose files say so by "
         "\"{}\"; say false where the files have lm_head.weight, as mT5's own do",
         version);
}

void write_t5(const ModelConfig& model, nlohmann::json& config) {
  const ActivationRow& row = row_named(kActivations, model.activation);
  config["num_decoder_layers"] = model.decoder_layers;
  config["relative_attention_num_buckets"] = model.relative_buckets;
  config["relative_attention_max_distance"] = model.relative_max_distance;
  config["feed_forward_proj"] = projection_of(model);
  config["dense_act_fn"] = row.activation == Activation::geglu ? "gelu_new" : row.hugging_face;
  config["is_gated_act"] = row.gated;
  config["scale_decoder_outputs"] = model.scale_head;
  config["pad_token_id"] = config["decoder_start_token_id"] = 0;
  config["eos_token_id"] = 1;
}

}  // namespace

HuggingFaceFamily hugging_face_t5() {
  ModelConfig form;
  form.family = "t5";
  form.position_embedding = "relative";
  form.normalization = "rmsnorm";
  form.norm_epsilon = 1e-6;
  form.bias = false;
  form.attention_scale = "none";
  form.activation = "relu";
  form.scale_head = true;
  return {
      .name = "t5",
      .architecture = "T5ForConditionalGeneration",
      .form = form,
      .free = {{"activation", activations_with_names()},
               {"tie_embeddings"},
               {"scale_head"},
               {"decoder_layers"},
               {"decoder_sequence_length"},
               {"relative_buckets"},
               {"relative_max_distance"}},
      .sizes = {.hidden = "d_model",
                .layers = "num_layers",
                .heads = "num_heads",
                .head_size = "d_kv",
                .ffn = "d_ff",
                .positions = "n_positions",
                .epsilon = "layer_norm_epsilon",
                .activation = nullptr,
                .initialization = nullptr,
                .hidden_dropout = {"dropout_rate"},
                .attention_dropout = "dropout_rate"},
      .defaults = hugging_face_defaults("t5"),
      .names = {.prefix = "", .word = "shared", .layer = "encoder.block.", .head = "lm_head"},
      .tensors = t5_tensors,
      .derived = {"decoder.block.0.layer.1.EncDecAttention.relative_attention_bias.weight"},
      .copies = {{"encoder.embed_tokens.weight", "shared.weight"}, {"decoder.embed_tokens.weight", "shared.weight"}},
      .files_untie_head = true,
      .tied_head_is_scaled = true,
      .read = read_t5,
      .write = write_t5};
}

HuggingFaceFamily hugging_face_mt5() {
  HuggingFaceFamily family = hugging_face_t5();
  family.name = "mt5";
  family.architecture = "MT5ForConditionalGeneration";
  family.form.activation = "geglu";
  family.form.scale_head = false;
  family.free.erase(std::find_if(family.free.begin(), family.free.end(),
                                 [](const FreeKey& key) { return key.key == std::string_view("scale_head"); }));
  family.defaults = hugging_face_defaults("mt5");
  family.read = read_mt5;
  return family;
}

}  // namespace megatron

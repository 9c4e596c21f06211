// The rows of Mixtral, Qwen2-MoE and Qwen3-MoE, which drop no tokens: nor does an import, and an export says nothing of
// room.
#include <set>

#include "checkpoint/hugging_face/hugging_face_llama.h"

namespace megatron {

namespace {

using nlohmann::json;

/// Their loss of balance is over all layers and tokens of a batch at once; ours is by sample and layer, of the same
/// size.
void read_router(const HuggingFaceKeys& keys, MoeConfig& moe, const char* experts) {
  moe.experts = keys.size(experts);
  moe.top_k = keys.size("num_experts_per_tok");
  verify(moe.top_k <= moe.experts, ErrorKind::checkpoint, "\"num_experts_per_tok\" is {} of {} experts", moe.top_k,
         moe.experts);
  moe.balance_coefficient = keys.number("router_aux_loss_coef");
  moe.drop = "none";
  moe.evaluation_capacity_factor = moe.capacity_factor;  // as without the key
}

void write_router(const MoeConfig& moe, json& config, const char* experts) {
  config[experts] = moe.experts;
  config["num_experts_per_tok"] = moe.top_k;
  config["router_aux_loss_coef"] = moe.balance_coefficient;
  config["output_router_logits"] = false;
}

void read_mixtral(const HuggingFaceKeys& keys, ModelConfig& model) {
  read_mistral(keys, model);
  read_router(keys, model.moe, "num_local_experts");
  verify(keys.number("router_jitter_noise") == 0, ErrorKind::checkpoint,
         "\"router_jitter_noise\": theirs is also noise of what experts read, which cannot be trained here");
  model.moe.ffn_hidden_size = model.ffn_hidden_size;
}

void write_mixtral(const ModelConfig& model, json& config) {
  write_mistral(model, config);
  write_router(model.moe, config, "num_local_experts");
  config["intermediate_size"] = model.moe.ffn_hidden_size;
}

/// Qwen's experts, of either generation.
void read_sparse_layers(const HuggingFaceKeys& keys, ModelConfig& model) {
  MoeConfig& moe = model.moe;
  read_router(keys, moe, "num_experts");
  moe.every = keys.size("decoder_sparse_step");
  moe.ffn_hidden_size = keys.size("moe_intermediate_size");
  moe.renormalize = keys.flag("norm_topk_prob");
  std::set<std::int64_t> without;
  for (const json& layer : keys.array("mlp_only_layers")) {
    verify(layer.is_number_integer(), ErrorKind::checkpoint, "\"mlp_only_layers\" is not an array of layers");
    without.insert(layer.get<std::int64_t>());
  }
  if (without.empty()) return;
  std::vector<std::int64_t> layers;
  for (std::int64_t layer = 0; layer < model.layers; ++layer) {
    if (moe.in_layer(layer) && without.count(layer) == 0) layers.push_back(layer);
  }
  verify(!layers.empty(), ErrorKind::checkpoint, "\"mlp_only_layers\" leaves no layer with experts");
  moe.layers = layers;
  moe.every = 1;
}

void write_sparse_layers(const ModelConfig& model, json& config) {
  const MoeConfig& moe = model.moe;
  write_router(moe, config, "num_experts");
  config["num_local_experts"] = moe.experts;  // the key that newer versions write
  config["moe_intermediate_size"] = moe.ffn_hidden_size;
  config["norm_topk_prob"] = moe.renormalize;
  config["decoder_sparse_step"] = moe.every;
  json without = json::array();
  for (std::int64_t layer = 0; layer < model.layers; ++layer) {
    if (!moe.in_layer(layer) && (layer + 1) % moe.every == 0) without.push_back(layer);
  }
  config["mlp_only_layers"] = without;
}

void read_qwen2_moe(const HuggingFaceKeys& keys, ModelConfig& model) {
  model.bias = {keys.flag("qkv_bias"), false, false};
  read_qwen_window(keys, model, QwenWindow::another_by_version);
  read_sparse_layers(keys, model);
  MoeConfig& moe = model.moe;
  const std::int64_t shared = keys.size("shared_expert_intermediate_size");
  verify(
      shared % moe.ffn_hidden_size == 0, ErrorKind::checkpoint,
      "\"shared_expert_intermediate_size\" = {} is no multiple of \"moe_intermediate_size\" = {}: shared experts are "
      "as wide as the others here",
      shared, moe.ffn_hidden_size);
  moe.shared_experts = shared / moe.ffn_hidden_size;
}

void write_qwen2_moe(const ModelConfig& model, json& config) {
  config["qkv_bias"] = model.bias.query_key_value;
  write_qwen_window(model, config);
  write_sparse_layers(model, config);
  config["shared_expert_intermediate_size"] = model.moe.shared_ffn();
}

void read_qwen3_moe(const HuggingFaceKeys& keys, ModelConfig& model) {
  read_qwen3(keys, model, QwenWindow::all_layers);
  read_sparse_layers(keys, model);
}

void write_qwen3_moe(const ModelConfig& model, json& config) {
  write_qwen3(model, config);
  write_sparse_layers(model, config);
}

/// Adds the names of either generation of Qwen's experts.
HuggingFaceNames with_sparse_layers(HuggingFaceNames names) {
  names.router = "mlp.gate";
  names.expert = "mlp.experts.";
  names.expert_gate = "gate_proj";
  names.expert_up = "up_proj";
  names.expert_down = "down_proj";
  return names;
}

/// Keys of which a family of Qwen's with experts leaves the choice, and of its biases these.
std::vector<FreeKey> free_of_qwen(const std::vector<std::string>& biases) {
  return {{"activation", hugging_face_activations(true)},
          {"tie_embeddings"},
          {"attention_window"},
          {"bias", biases},
          {"every"},
          {"layers"},
          {"renormalize"}};
}

}  // namespace

HuggingFaceFamily hugging_face_mixtral() {
  HuggingFaceNames names = llama_names();
  names.gate = names.up = names.down = nullptr;
  names.router = "block_sparse_moe.gate";
  names.expert = "block_sparse_moe.experts.";
  names.expert_gate = "w1";
  names.expert_up = "w3";
  names.expert_down = "w2";
  ModelConfig form = llama_form();
  form.norm_epsilon = 1e-5;
  return {.name = "mixtral",
          .architecture = "MixtralForCausalLM",
          .form = form,
          .free = {{"activation", hugging_face_activations(true)}, {"tie_embeddings"}, {"attention_window"}},
          .sizes = llama_sizes(),
          .defaults = hugging_face_defaults("mixtral"),
          .names = names,
          .derived = kRotaryFrequencies,
          .begins_texts = true,
          .read = read_mixtral,
          .write = write_mixtral};
}

HuggingFaceFamily hugging_face_qwen2_moe() {
  HuggingFaceNames names = with_sparse_layers(llama_names());
  names.shared_expert = "mlp.shared_expert.";
  names.shared_gate = "mlp.shared_expert_gate";
  ModelConfig form = llama_form();
  form.bias = {true, false, false};
  form.moe.shared_gate = true;
  return {.name = "qwen2_moe",
          .architecture = "Qwen2MoeForCausalLM",
          .form = form,
          .free = free_of_qwen({"\"query_key_value\"", "false"}),
          .sizes = llama_sizes(),
          .defaults = hugging_face_defaults("qwen2_moe"),
          .names = names,
          .derived = kRotaryFrequencies,
          .read = read_qwen2_moe,
          .write = write_qwen2_moe};
}

HuggingFaceFamily hugging_face_qwen3_moe() {
  ModelConfig form = llama_form();
  form.query_key_norm = true;
  return {.name = "qwen3_moe",
          .architecture = "Qwen3MoeForCausalLM",
          .form = form,
          .free = free_of_qwen({"false", "\"attention\""}),
          .sizes = llama_sizes(),
          .defaults = hugging_face_defaults("qwen3_moe"),
          .names = with_sparse_layers(with_head_norms(llama_names())),
          .derived = kRotaryFrequencies,
          .read = read_qwen3_moe,
          .write = write_qwen3_moe};
}

}  // namespace megatron

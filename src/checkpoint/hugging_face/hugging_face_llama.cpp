// Llama and the families of its form: Mistral, Qwen2, Qwen3 and Gemma.
#include "checkpoint/hugging_face/hugging_face_llama.h"

namespace megatron {

namespace {

using nlohmann::json;

void read_llama(const HuggingFaceKeys& keys, ModelConfig& model) {
  const bool attention = keys.flag("attention_bias");
  model.bias = {attention, attention, keys.flag("mlp_bias")};
  read_rotation(keys, model);
}

void write_llama(const ModelConfig& model, nlohmann::json& config) {
  config["attention_bias"] = model.bias.query_key_value;
  config["mlp_bias"] = model.bias.feed_forward;
  write_rotation(model, config);
}

// "layer_types" of models some of whose layers have a window; "" where it is absent.
std::string kind_of_layers(const HuggingFaceKeys& keys, std::int64_t layers) {
  const std::string kind = keys.same_text("layer_types", layers, "a window in some layers only");
  verify(kind.empty() || kind == "full_attention" || kind == "sliding_attention", ErrorKind::checkpoint,
         "\"layer_types\": layers of type \"{}\" cannot be trained here", kind);
  return kind;
}

}  // namespace

void read_mistral(const HuggingFaceKeys& keys, ModelConfig& model) {
  kind_of_layers(keys, model.layers);  // a kind that is the same for all layers has no effect
  model.attention_window = keys.size("sliding_window", 0);
  read_rotation(keys, model);
}

void write_mistral(const ModelConfig& model, nlohmann::json& config) {
  config["sliding_window"] = model.attention_window > 0 ? json(model.attention_window) : json();
  write_rotation(model, config);
}

void read_qwen_window(const HuggingFaceKeys& keys, ModelConfig& model, QwenWindow where) {
  read_rotation(keys, model);
  const bool windows = keys.flag("use_sliding_window") && keys.has("sliding_window");
  std::string kind = kind_of_layers(keys, model.layers);
  verify(windows || kind != "sliding_attention", ErrorKind::checkpoint,
         "\"layer_types\" has windows, and \"use_sliding_window\" or \"sliding_window\" none");
  if (!windows) return;
  if (where == QwenWindow::upper_layers && kind.empty()) {
    const std::int64_t without = keys.count("max_window_layers");
    verify(without == 0 || without >= model.layers, ErrorKind::checkpoint,
           "\"max_window_layers\" is {} of {} layers: a window in some layers only cannot be trained here", without,
           model.layers);
    kind = without == 0 ? "sliding_attention" : "full_attention";
  }
  if (where == QwenWindow::all_layers && kind.empty()) kind = "sliding_attention";
  verify(
      where == QwenWindow::upper_layers || kind == "sliding_attention", ErrorKind::checkpoint,
      "\"use_sliding_window\": versions of transformers have the window in other layers; say \"use_sliding_window\": "
      "false, or \"sliding_attention\" for each of {} layers in \"layer_types\"",
      model.layers);
  if (kind == "sliding_attention") model.attention_window = keys.size("sliding_window");
}

void write_qwen_window(const ModelConfig& model, nlohmann::json& config) {
  const bool windows = model.attention_window > 0;
  config["use_sliding_window"] = windows;
  config["sliding_window"] = windows ? json(model.attention_window) : json();
  config["max_window_layers"] = windows ? 0 : model.layers;
  config["layer_types"] = std::vector<std::string>(static_cast<std::size_t>(model.layers),
                                                   windows ? "sliding_attention" : "full_attention");
  write_rotation(model, config);
}

void read_qwen3(const HuggingFaceKeys& keys, ModelConfig& model, QwenWindow where) {
  const bool attention = keys.flag("attention_bias");
  model.bias = {attention, attention, false};
  read_qwen_window(keys, model, where);
}

void write_qwen3(const ModelConfig& model, nlohmann::json& config) {
  config["attention_bias"] = model.bias.query_key_value;
  write_qwen_window(model, config);
}

namespace {

void read_gemma(const HuggingFaceKeys& keys, ModelConfig& model) {
  if (keys.has("use_bidirectional_attention")) keys.require("use_bidirectional_attention", false);
  const bool attention = keys.flag("attention_bias");
  model.bias = {attention, attention, false};
  read_rotation(keys, model);
}

void write_gemma(const ModelConfig& model, nlohmann::json& config) {
  config["attention_bias"] = model.bias.query_key_value;
  config["hidden_activation"] = config["hidden_act"];  // some versions read this instead
  write_rotation(model, config);
}

}  // namespace

ModelConfig llama_form() {
  ModelConfig form;
  form.position_embedding = "rope";
  form.normalization = "rmsnorm";
  form.norm_epsilon = 1e-6;
  form.activation = "swiglu";
  form.bias = form.tie_embeddings = false;
  form.hidden_dropout = form.attention_dropout = 0;
  return form;
}

HuggingFaceSizes llama_sizes() {
  return {.groups = "num_key_value_heads", .head_size = "head_dim", .epsilon = "rms_norm_eps"};
}

HuggingFaceNames llama_names() {
  return {.prefix = "model.",
          .word = "model.embed_tokens",
          .layer = "model.layers.",
          .attention_norm = "input_layernorm",
          .mlp_norm = "post_attention_layernorm",
          .query = "self_attn.q_proj",
          .key = "self_attn.k_proj",
          .value = "self_attn.v_proj",
          .output = "self_attn.o_proj",
          .gate = "mlp.gate_proj",
          .up = "mlp.up_proj",
          .down = "mlp.down_proj",
          .final_norm = "model.norm",
          .head = "lm_head"};
}

HuggingFaceNames with_head_norms(HuggingFaceNames names) {
  names.query_norm = "self_attn.q_norm";
  names.key_norm = "self_attn.k_norm";
  return names;
}

namespace {

const std::vector<std::string> kAttentionOrNone = {"false", "\"attention\""};

}  // namespace

HuggingFaceFamily hugging_face_llama() {
  return {.name = "llama",
          .architecture = "LlamaForCausalLM",
          .form = llama_form(),
          .free = {{"activation", hugging_face_activations(true)},
                   {"tie_embeddings"},
                   {"bias", {"true", "false", "\"attention\"", "\"feed_forward\""}}},
          .sizes = llama_sizes(),
          .defaults = hugging_face_defaults("llama"),
          .names = llama_names(),
          .derived = kRotaryFrequencies,
          .begins_texts = true,
          .read = read_llama,
          .write = write_llama};
}

HuggingFaceFamily hugging_face_mistral() {
  return {.name = "mistral",
          .architecture = "MistralForCausalLM",
          .form = llama_form(),
          .free = {{"activation", hugging_face_activations(true)}, {"tie_embeddings"}, {"attention_window"}},
          .sizes = llama_sizes(),
          .defaults = hugging_face_defaults("mistral"),
          .names = llama_names(),
          .derived = kRotaryFrequencies,
          .begins_texts = true,
          .read = read_mistral,
          .write = write_mistral};
}

HuggingFaceFamily hugging_face_qwen2() {
  return {.name = "qwen2",
          .architecture = "Qwen2ForCausalLM",
          .form = form_with(llama_form(),
                            [](ModelConfig& form) {
                              form.bias = {true, false, false};
                            }),
          .free = {{"activation", hugging_face_activations(true)}, {"tie_embeddings"}, {"attention_window"}},
          .sizes = llama_sizes(),
          .defaults = hugging_face_defaults("qwen2"),
          .names = llama_names(),
          .derived = kRotaryFrequencies,
          .read = [](const HuggingFaceKeys& keys,
                     ModelConfig& model) { read_qwen_window(keys, model, QwenWindow::upper_layers); },
          .write = write_qwen_window};
}

HuggingFaceFamily hugging_face_qwen3() {
  return {.name = "qwen3",
          .architecture = "Qwen3ForCausalLM",
          .form = form_with(llama_form(), [](ModelConfig& form) { form.query_key_norm = true; }),
          .free = {{"activation", hugging_face_activations(true)},
                   {"tie_embeddings"},
                   {"attention_window"},
                   {"bias", kAttentionOrNone}},
          .sizes = llama_sizes(),
          .defaults = hugging_face_defaults("qwen3"),
          .names = with_head_norms(llama_names()),
          .derived = kRotaryFrequencies,
          .read = [](const HuggingFaceKeys& keys,
                     ModelConfig& model) { read_qwen3(keys, model, QwenWindow::upper_layers); },
          .write = write_qwen3};
}

HuggingFaceFamily hugging_face_gemma() {
  const auto form = [](ModelConfig& model) {
    model.activation = "geglu";
    model.tie_embeddings = model.scale_embeddings = true;
  };
  return {.name = "gemma",
          .architecture = "GemmaForCausalLM",
          .form = form_with(llama_form(), form),
          .free = {{"activation", hugging_face_activations(true)}, {"tie_embeddings"}, {"bias", kAttentionOrNone}},
          .sizes = llama_sizes(),
          .defaults = hugging_face_defaults("gemma"),
          .names = llama_names(),
          .norm_shift = 1,
          .derived = kRotaryFrequencies,
          .begins_texts = true,
          .read = read_gemma,
          .write = write_gemma};
}

}  // namespace megatron

// Llama and the families of its form: Mistral, Qwen2, Qwen3 and Gemma.
#include "interop/hugging_face_llama.h"

namespace megatron {

namespace {

using nlohmann::json;

void read_llama(const HuggingFaceKeys& keys, ModelConfig& model) {
  const bool attention = keys.flag("attention_bias", false);
  model.bias = {attention, attention, keys.flag("mlp_bias", false)};
  read_rotation(keys, model, 0);
}

void write_llama(const ModelConfig& model, nlohmann::json& config) {
  config["attention_bias"] = model.bias.query_key_value;
  config["mlp_bias"] = model.bias.feed_forward;
  write_rotation(model, config);
}

// "layer_types" of models some of whose layers have a window; "" where it is absent.
std::string kind_of_layers(const HuggingFaceKeys& keys) {
  const std::string kind = keys.same_text("layer_types", "a window in some layers only");
  verify(kind.empty() || kind == "full_attention" || kind == "sliding_attention", ErrorKind::checkpoint,
         "\"layer_types\": layers of type \"{}\" cannot be trained here", kind);
  return kind;
}

// Absent it is 4096; null is none.
std::int64_t window_of(const HuggingFaceKeys& keys) {
  return keys.size("sliding_window", keys.given("sliding_window") ? 0 : 4096);
}

}  // namespace

void read_mistral(const HuggingFaceKeys& keys, ModelConfig& model) {
  kind_of_layers(keys);  // which has no effect where it is the same for all
  model.attention_window = window_of(keys);
  read_rotation(keys, model, 0);
}

void write_mistral(const ModelConfig& model, nlohmann::json& config) {
  config["sliding_window"] = model.attention_window > 0 ? json(model.attention_window) : json();
  write_rotation(model, config);
}

void read_qwen_window(const HuggingFaceKeys& keys, ModelConfig& model) {
  const bool windows = keys.flag("use_sliding_window", false);
  std::string kind = kind_of_layers(keys);
  verify(windows || kind != "sliding_attention", ErrorKind::checkpoint,
         "\"layer_types\" has windows and \"use_sliding_window\" none");
  if (kind.empty() && windows) {  // the first layers are without
    const std::int64_t without = keys.count("max_window_layers", 28);
    verify(without == 0 || without >= model.layers, ErrorKind::checkpoint,
           "\"max_window_layers\" is {} of {} layers: a window in some layers only cannot be trained here", without,
           model.layers);
    kind = without == 0 ? "sliding_attention" : "";
  }
  if (kind == "sliding_attention") model.attention_window = window_of(keys);
  read_rotation(keys, model, 0);
}

void write_qwen_window(const ModelConfig& model, nlohmann::json& config) {
  const bool windows = model.attention_window > 0;
  config["use_sliding_window"] = windows;
  config["sliding_window"] = windows ? json(model.attention_window) : json();
  config["max_window_layers"] = windows ? 0 : model.layers;
  write_rotation(model, config);
}

void read_qwen3(const HuggingFaceKeys& keys, ModelConfig& model) {
  const bool attention = keys.flag("attention_bias", false);
  model.bias = {attention, attention, false};
  read_qwen_window(keys, model);
}

void write_qwen3(const ModelConfig& model, nlohmann::json& config) {
  config["attention_bias"] = model.bias.query_key_value;
  write_qwen_window(model, config);
}

namespace {

void read_gemma(const HuggingFaceKeys& keys, ModelConfig& model) {
  keys.require("use_bidirectional_attention", false);
  const bool attention = keys.flag("attention_bias", false);
  model.bias = {attention, attention, false};
  read_rotation(keys, model, 0);
}

void write_gemma(const ModelConfig& model, nlohmann::json& config) {
  config["attention_bias"] = model.bias.query_key_value;
  config["hidden_activation"] = config["hidden_act"];  // what some versions read instead
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

HuggingFaceSizes llama_sizes(std::int64_t groups_if_absent, std::int64_t head_size_if_absent) {
  return {.hidden = "hidden_size",
          .layers = "num_hidden_layers",
          .heads = "num_attention_heads",
          .groups = "num_key_value_heads",
          .groups_if_absent = groups_if_absent,
          .head_size = "head_dim",
          .head_size_if_absent = head_size_if_absent,
          .ffn = "intermediate_size",
          .positions = "max_position_embeddings",
          .epsilon = "rms_norm_eps",
          .activation = "hidden_act"};
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

template <class Change>
ModelConfig form_with(const ModelConfig& of, const Change& change) {
  ModelConfig form = of;
  change(form);
  return form;
}

const std::vector<std::string> kAttentionOrNone = {"false", "\"attention\""};

}  // namespace

HuggingFaceFamily hugging_face_llama() {
  return {.name = "llama",
          .architecture = "LlamaForCausalLM",
          .form = llama_form(),
          .free = {{"activation", hugging_face_activations(true)},
                   {"tie_embeddings"},
                   {"bias", {"true", "false", "\"attention\"", "\"feed_forward\""}}},
          .sizes = llama_sizes(0, 0),
          .names = llama_names(),
          .derived = kRotaryFrequencies,
          .read = read_llama,
          .write = write_llama};
}

HuggingFaceFamily hugging_face_mistral() {
  return {.name = "mistral",
          .architecture = "MistralForCausalLM",
          .form = llama_form(),
          .free = {{"activation", hugging_face_activations(true)}, {"tie_embeddings"}, {"attention_window"}},
          .sizes = llama_sizes(8, 0),
          .names = llama_names(),
          .derived = kRotaryFrequencies,
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
          .sizes = llama_sizes(32, 0),
          .names = llama_names(),
          .derived = kRotaryFrequencies,
          .read = read_qwen_window,
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
          .sizes = llama_sizes(32, 128),
          .names = with_head_norms(llama_names()),
          .derived = kRotaryFrequencies,
          .read = read_qwen3,
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
          .sizes = llama_sizes(16, 256),
          .names = llama_names(),
          .gelu_is_tanh = true,
          .norm_shift = 1,
          .derived = kRotaryFrequencies,
          .read = read_gemma,
          .write = write_gemma};
}

}  // namespace megatron

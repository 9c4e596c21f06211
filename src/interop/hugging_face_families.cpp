#include "interop/hugging_face_families.h"

namespace megatron {

namespace {

using nlohmann::json;

// How the families read and write what their rows leave open.

void read_gpt2(const HuggingFaceKeys& keys, ModelConfig&) {
  for (const char* key : {"scale_attn_by_inverse_layer_idx", "add_cross_attention"}) keys.require(key, false);
  keys.require("scale_attn_weights", true);
}

void write_nothing(const ModelConfig&, json&) {}

void write_rotation(const ModelConfig& model, json& config) {
  config["rope_theta"] = model.rotary_base;
  config["rope_scaling"] = hugging_face_scaling(model);
}

void read_llama(const HuggingFaceKeys& keys, ModelConfig& model) {
  const bool attention = keys.flag("attention_bias", false);
  model.bias = {attention, attention, keys.flag("mlp_bias", false)};
  read_rotation(keys, model, 0);
}

void write_llama(const ModelConfig& model, json& config) {
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

void read_mistral(const HuggingFaceKeys& keys, ModelConfig& model) {
  kind_of_layers(keys);  // which has no effect where it is the same for all
  model.attention_window = window_of(keys);
  read_rotation(keys, model, 0);
}

void write_mistral(const ModelConfig& model, json& config) {
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

void write_qwen_window(const ModelConfig& model, json& config) {
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

void write_qwen3(const ModelConfig& model, json& config) {
  config["attention_bias"] = model.bias.query_key_value;
  write_qwen_window(model, config);
}

void read_gemma(const HuggingFaceKeys& keys, ModelConfig& model) {
  keys.require("use_bidirectional_attention", false);
  const bool attention = keys.flag("attention_bias", false);
  model.bias = {attention, attention, false};
  read_rotation(keys, model, 0);
}

void write_gemma(const ModelConfig& model, json& config) {
  config["attention_bias"] = model.bias.query_key_value;
  config["hidden_activation"] = config["hidden_act"];  // what some versions read instead
  write_rotation(model, config);
}

void read_opt(const HuggingFaceKeys& keys, ModelConfig& model) {
  verify(keys.flag("do_layer_norm_before", true), ErrorKind::checkpoint,
         "\"do_layer_norm_before\": false, normalization after each part (as in OPT-350m), cannot be trained here");
  keys.require("_remove_final_layer_norm", false);
  keys.require("layer_norm_elementwise_affine", true);
  verify(keys.size("word_embed_proj_dim", model.hidden_size) == model.hidden_size, ErrorKind::checkpoint,
         "\"word_embed_proj_dim\" is not \"hidden_size\": embeddings of another width cannot be trained here");
  model.bias = keys.flag("enable_bias", true);
}

void write_opt(const ModelConfig& model, json& config) {
  config["do_layer_norm_before"] = true;
  config["word_embed_proj_dim"] = model.hidden_size;
  config["enable_bias"] = model.bias.feed_forward;
}

void read_gpt_neox(const HuggingFaceKeys& keys, ModelConfig& model) {
  model.residual = keys.flag("use_parallel_residual", true) ? "parallel" : "sequential";
  const bool attention = keys.flag("attention_bias", true);
  model.bias = {attention, attention, true};
  read_rotation(keys, model, 0.25);
}

void write_gpt_neox(const ModelConfig& model, json& config) {
  config["use_parallel_residual"] = model.residual == "parallel";
  config["attention_bias"] = model.bias.query_key_value;
  config["rotary_pct"] = model.rotary_fraction;
  config["rotary_emb_base"] = model.rotary_base;
  write_rotation(model, config);
}

void read_bloom(const HuggingFaceKeys& keys, ModelConfig&) {
  keys.require("apply_residual_connection_post_layernorm", false);
}

void read_phi(const HuggingFaceKeys& keys, ModelConfig& model) {
  keys.require("qk_layernorm", false);
  read_rotation(keys, model, 0.5);
}

void write_phi(const ModelConfig& model, json& config) {
  config["partial_rotary_factor"] = model.rotary_fraction;
  config["qk_layernorm"] = false;
  write_rotation(model, config);
}

// What rows have in common.

template <class Change>
ModelConfig form_with(const ModelConfig& of, const Change& change) {
  ModelConfig form = of;
  change(form);
  return form;
}

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

ModelConfig without_dropout(ModelConfig form) {
  form.hidden_dropout = form.attention_dropout = 0;
  return form;
}

// Those that they have a name for.
std::vector<std::string> activations(bool gated) {
  std::vector<std::string> names;
  for (const ActivationRow& row : kActivations) {
    if (row.gated == gated && row.hugging_face != nullptr) names.push_back('"' + std::string(row.name) + '"');
  }
  return names;
}
const std::vector<std::string> kPlain = activations(false), kGated = activations(true);
const std::vector<std::string> kAttentionOrNone = {"false", "\"attention\""};

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

const HuggingFaceNames kLlamaNames = {.prefix = "model.",
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

HuggingFaceNames with_head_norms(HuggingFaceNames names) {
  names.query_norm = "self_attn.q_norm";
  names.key_norm = "self_attn.k_norm";
  return names;
}

const std::vector<const char*> kFrequencies = {".rotary_emb.inv_freq"};

HuggingFaceFamily gpt2() {
  return {.name = "gpt2",
          .architecture = "GPT2LMHeadModel",
          .form = {},
          .free = {{"activation", kPlain}, {"tie_embeddings"}},
          .sizes = {.hidden = "n_embd",
                    .layers = "n_layer",
                    .heads = "n_head",
                    .ffn = "n_inner",
                    .ffn_may_be_absent = true,
                    .positions = "n_positions",
                    .epsilon = "layer_norm_epsilon",
                    .activation = "activation_function",
                    .hidden_dropout = {"resid_pdrop", "embd_pdrop"},
                    .attention_dropout = "attn_pdrop"},
          .names = {.prefix = "transformer.",
                    .word = "transformer.wte",
                    .position = "transformer.wpe",
                    .layer = "transformer.h.",
                    .attention_norm = "ln_1",
                    .mlp_norm = "ln_2",
                    .query_key_value = "attn.c_attn",
                    .output = "attn.c_proj",
                    .up = "mlp.c_fc",
                    .down = "mlp.c_proj",
                    .final_norm = "transformer.ln_f",
                    .head = "lm_head"},
          .qkv = HuggingFaceQkv::stacked,
          .transposed = true,
          .derived = {".attn.bias", ".attn.masked_bias"},
          .read = read_gpt2,
          .write = write_nothing};
}

HuggingFaceFamily llama() {
  return {.name = "llama",
          .architecture = "LlamaForCausalLM",
          .form = llama_form(),
          .free = {{"activation", kGated},
                   {"tie_embeddings"},
                   {"bias", {"true", "false", "\"attention\"", "\"feed_forward\""}}},
          .sizes = llama_sizes(0, 0),
          .names = kLlamaNames,
          .derived = kFrequencies,
          .read = read_llama,
          .write = write_llama};
}

HuggingFaceFamily mistral() {
  return {.name = "mistral",
          .architecture = "MistralForCausalLM",
          .form = llama_form(),
          .free = {{"activation", kGated}, {"tie_embeddings"}, {"attention_window"}},
          .sizes = llama_sizes(8, 0),
          .names = kLlamaNames,
          .derived = kFrequencies,
          .read = read_mistral,
          .write = write_mistral};
}

HuggingFaceFamily qwen2() {
  return {.name = "qwen2",
          .architecture = "Qwen2ForCausalLM",
          .form = form_with(llama_form(),
                            [](ModelConfig& form) {
                              form.bias = {true, false, false};
                            }),
          .free = {{"activation", kGated}, {"tie_embeddings"}, {"attention_window"}},
          .sizes = llama_sizes(32, 0),
          .names = kLlamaNames,
          .derived = kFrequencies,
          .read = read_qwen_window,
          .write = write_qwen_window};
}

HuggingFaceFamily qwen3() {
  return {.name = "qwen3",
          .architecture = "Qwen3ForCausalLM",
          .form = form_with(llama_form(), [](ModelConfig& form) { form.query_key_norm = true; }),
          .free = {{"activation", kGated}, {"tie_embeddings"}, {"attention_window"}, {"bias", kAttentionOrNone}},
          .sizes = llama_sizes(32, 128),
          .names = with_head_norms(kLlamaNames),
          .derived = kFrequencies,
          .read = read_qwen3,
          .write = write_qwen3};
}

HuggingFaceFamily gemma() {
  const auto form = [](ModelConfig& model) {
    model.activation = "geglu";
    model.tie_embeddings = model.scale_embeddings = true;
  };
  return {.name = "gemma",
          .architecture = "GemmaForCausalLM",
          .form = form_with(llama_form(), form),
          .free = {{"activation", kGated}, {"tie_embeddings"}, {"bias", kAttentionOrNone}},
          .sizes = llama_sizes(16, 256),
          .names = kLlamaNames,
          .gelu_is_tanh = true,
          .norm_shift = 1,
          .derived = kFrequencies,
          .read = read_gemma,
          .write = write_gemma};
}

HuggingFaceFamily opt() {
  const auto form = [](ModelConfig& model) {
    model.activation = "relu";
    model.attention_dropout = 0;
  };
  return {.name = "opt",
          .architecture = "OPTForCausalLM",
          .form = form_with(ModelConfig(), form),
          .free = {{"activation", kPlain}, {"tie_embeddings"}, {"bias", {"true", "false"}}},
          .sizes = {.hidden = "hidden_size",
                    .layers = "num_hidden_layers",
                    .heads = "num_attention_heads",
                    .ffn = "ffn_dim",
                    .positions = "max_position_embeddings",
                    .activation = "activation_function",
                    .initialization = "init_std",
                    .hidden_dropout = {"dropout"}},
          .names = {.prefix = "model.",
                    .word = "model.decoder.embed_tokens",
                    .position = "model.decoder.embed_positions",
                    .layer = "model.decoder.layers.",
                    .attention_norm = "self_attn_layer_norm",
                    .mlp_norm = "final_layer_norm",
                    .query = "self_attn.q_proj",
                    .key = "self_attn.k_proj",
                    .value = "self_attn.v_proj",
                    .output = "self_attn.out_proj",
                    .up = "fc1",
                    .down = "fc2",
                    .final_norm = "model.decoder.final_layer_norm",
                    .head = "lm_head"},
          .position_shift = 2,
          .read = read_opt,
          .write = write_opt};
}

HuggingFaceFamily gpt_neox() {
  const auto form = [](ModelConfig& model) {
    model.position_embedding = "rope";
    model.activation = "gelu_exact";
    model.residual = "parallel";
    model.tie_embeddings = false;
  };
  return {.name = "gpt_neox",
          .architecture = "GPTNeoXForCausalLM",
          .form = without_dropout(form_with(ModelConfig(), form)),
          .free = {{"activation", kPlain},
                   {"tie_embeddings"},
                   {"rotary_fraction"},
                   {"residual", {"\"parallel\"", "\"sequential\""}},
                   {"bias", {"true", "\"feed_forward\""}}},
          .sizes = {.hidden = "hidden_size",
                    .layers = "num_hidden_layers",
                    .heads = "num_attention_heads",
                    .ffn = "intermediate_size",
                    .positions = "max_position_embeddings",
                    .epsilon = "layer_norm_eps",
                    .activation = "hidden_act",
                    .hidden_dropout = {"hidden_dropout"}},
          .names = {.prefix = "gpt_neox.",
                    .word = "gpt_neox.embed_in",
                    .layer = "gpt_neox.layers.",
                    .attention_norm = "input_layernorm",
                    .mlp_norm = "post_attention_layernorm",
                    .query_key_value = "attention.query_key_value",
                    .output = "attention.dense",
                    .up = "mlp.dense_h_to_4h",
                    .down = "mlp.dense_4h_to_h",
                    .final_norm = "gpt_neox.final_layer_norm",
                    .head = "embed_out"},
          .qkv = HuggingFaceQkv::by_head,
          .derived = {".attention.bias", ".attention.masked_bias", ".rotary_emb.inv_freq"},
          .read = read_gpt_neox,
          .write = write_gpt_neox};
}

HuggingFaceFamily bloom() {
  const auto form = [](ModelConfig& model) {
    model.position_embedding = "alibi";
    model.embedding_norm = true;
  };
  return {.name = "bloom",
          .architecture = "BloomForCausalLM",
          .form = without_dropout(form_with(ModelConfig(), form)),
          .free = {{"tie_embeddings"}},
          .sizes = {.hidden = "hidden_size",
                    .layers = "n_layer",
                    .heads = "n_head",
                    .positions = "seq_length",
                    .positions_if_absent = 2048,
                    .epsilon = "layer_norm_epsilon",
                    .hidden_dropout = {"hidden_dropout"}},
          .aliases = {{"hidden_size", "n_embed"}, {"n_layer", "num_hidden_layers"}, {"n_head", "num_attention_heads"}},
          .names = {.prefix = "transformer.",
                    .word = "transformer.word_embeddings",
                    .embedding_norm = "transformer.word_embeddings_layernorm",
                    .layer = "transformer.h.",
                    .attention_norm = "input_layernorm",
                    .mlp_norm = "post_attention_layernorm",
                    .query_key_value = "self_attention.query_key_value",
                    .output = "self_attention.dense",
                    .up = "mlp.dense_h_to_4h",
                    .down = "mlp.dense_4h_to_h",
                    .final_norm = "transformer.ln_f",
                    .head = "lm_head"},
          .qkv = HuggingFaceQkv::by_head,
          .read = read_bloom,
          .write = write_nothing};
}

HuggingFaceFamily phi() {
  const auto form = [](ModelConfig& model) {
    model.position_embedding = "rope";
    model.residual = "parallel_one_norm";
    model.head_bias = true;
    model.tie_embeddings = false;
  };
  return {.name = "phi",
          .architecture = "PhiForCausalLM",
          .form = without_dropout(form_with(ModelConfig(), form)),
          .free = {{"activation", kPlain}, {"tie_embeddings"}, {"rotary_fraction"}},
          .sizes = {.hidden = "hidden_size",
                    .layers = "num_hidden_layers",
                    .heads = "num_attention_heads",
                    .groups = "num_key_value_heads",
                    .head_size = "head_dim",
                    .ffn = "intermediate_size",
                    .positions = "max_position_embeddings",
                    .epsilon = "layer_norm_eps",
                    .activation = "hidden_act",
                    .hidden_dropout = {"resid_pdrop", "embd_pdrop"}},
          .names = {.prefix = "model.",
                    .word = "model.embed_tokens",
                    .layer = "model.layers.",
                    .attention_norm = "input_layernorm",
                    .query = "self_attn.q_proj",
                    .key = "self_attn.k_proj",
                    .value = "self_attn.v_proj",
                    .output = "self_attn.dense",
                    .up = "mlp.fc1",
                    .down = "mlp.fc2",
                    .final_norm = "model.final_layernorm",
                    .head = "lm_head"},
          .derived = kFrequencies,
          .read = read_phi,
          .write = write_phi};
}

}  // namespace

const std::vector<HuggingFaceFamily>& hugging_face_families() {
  static const std::vector<HuggingFaceFamily> families = {gpt2(),
                                                          llama(),
                                                          mistral(),
                                                          qwen2(),
                                                          qwen3(),
                                                          gemma(),
                                                          opt(),
                                                          gpt_neox(),
                                                          bloom(),
                                                          phi(),
                                                          hugging_face_megatron_bert(),
                                                          hugging_face_bert()};
  return families;
}

}  // namespace megatron

#include "checkpoint/hugging_face/hugging_face_families.h"

namespace megatron {

std::vector<std::string> hugging_face_activations(bool gated) {
  std::vector<std::string> names;
  for (const ActivationRow& row : kActivations) {
    if (row.gated == gated && row.hugging_face != nullptr) names.push_back('"' + std::string(row.name) + '"');
  }
  return names;
}

namespace {

using nlohmann::json;

// How the families read and write what their rows leave open.

void read_gpt2(const HuggingFaceKeys& keys, ModelConfig&) {
  for (const char* key : {"scale_attn_by_inverse_layer_idx", "add_cross_attention"}) keys.require(key, false);
  keys.require("scale_attn_weights", true);
}

void write_nothing(const ModelConfig&, json&) {}

void read_opt(const HuggingFaceKeys& keys, ModelConfig& model) {
  verify(keys.flag("do_layer_norm_before"), ErrorKind::checkpoint,
         "\"do_layer_norm_before\": false, normalization after each part (as in OPT-350m), cannot be trained here");
  keys.require("_remove_final_layer_norm", false);
  keys.require("layer_norm_elementwise_affine", true);
  verify(keys.size("word_embed_proj_dim", model.hidden_size) == model.hidden_size, ErrorKind::checkpoint,
         "\"word_embed_proj_dim\" is not \"hidden_size\": embeddings of another width cannot be trained here");
  model.bias = keys.flag("enable_bias");
}

void write_opt(const ModelConfig& model, json& config) {
  config["word_embed_proj_dim"] = model.hidden_size;
  config["enable_bias"] = model.bias.feed_forward;
}

void read_gpt_neox(const HuggingFaceKeys& keys, ModelConfig& model) {
  model.residual = keys.flag("use_parallel_residual") ? "parallel" : "sequential";
  const bool attention = keys.flag("attention_bias");
  model.bias = {attention, attention, true};
  read_rotation(keys, model, "rotary_emb_base", "rotary_pct");
}

void write_gpt_neox(const ModelConfig& model, json& config) {
  config["use_parallel_residual"] = model.residuals() == ResidualOrder::parallel;
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
  read_rotation(keys, model, "rope_theta", "partial_rotary_factor");
}

void write_phi(const ModelConfig& model, json& config) {
  config["partial_rotary_factor"] = model.rotary_fraction;
  write_rotation(model, config);
}

// Helpers that rows share.

ModelConfig without_dropout(ModelConfig form) {
  form.hidden_dropout = form.attention_dropout = 0;
  return form;
}

const std::vector<std::string> kPlainActivations = hugging_face_activations(false);

HuggingFaceFamily gpt2() {
  return {.name = "gpt2",
          .architecture = "GPT2LMHeadModel",
          .form = {},
          .free = {{"activation", kPlainActivations}, {"tie_embeddings"}},
          .sizes = {.hidden = "n_embd",
                    .layers = "n_layer",
                    .heads = "n_head",
                    .ffn = "n_inner",
                    .positions = "n_positions",
                    .epsilon = "layer_norm_epsilon",
                    .activation = "activation_function",
                    .hidden_dropout = {"resid_pdrop", "embd_pdrop"},
                    .attention_dropout = "attn_pdrop"},
          .defaults = hugging_face_defaults("gpt2"),
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

HuggingFaceFamily opt() {
  const auto form = [](ModelConfig& model) {
    model.activation = "relu";
    model.attention_dropout = 0;
  };
  return {.name = "opt",
          .architecture = "OPTForCausalLM",
          .form = form_with(ModelConfig(), form),
          .free = {{"activation", kPlainActivations}, {"tie_embeddings"}, {"bias", {"true", "false"}}},
          .sizes = {.ffn = "ffn_dim",
                    .activation = "activation_function",
                    .initialization = "init_std",
                    .hidden_dropout = {"dropout"}},
          .defaults = hugging_face_defaults("opt"),
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
          .free = {{"activation", kPlainActivations},
                   {"tie_embeddings"},
                   {"rotary_fraction"},
                   {"residual", {"\"parallel\"", "\"sequential\""}},
                   {"bias", {"true", "\"feed_forward\""}}},
          .sizes = {.epsilon = "layer_norm_eps", .hidden_dropout = {"hidden_dropout"}},
          .defaults = hugging_face_defaults("gpt_neox"),
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
          .sizes = {.layers = "n_layer",
                    .heads = "n_head",
                    .ffn = nullptr,
                    .positions = "seq_length",
                    .epsilon = "layer_norm_epsilon",
                    .activation = nullptr,
                    .hidden_dropout = {"hidden_dropout"}},
          .defaults = hugging_face_defaults("bloom"),
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
          .free = {{"activation", kPlainActivations}, {"tie_embeddings"}, {"rotary_fraction"}},
          .sizes = {.groups = "num_key_value_heads",
                    .head_size = "head_dim",
                    .epsilon = "layer_norm_eps",
                    .hidden_dropout = {"resid_pdrop", "embd_pdrop"}},
          .defaults = hugging_face_defaults("phi"),
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
          .derived = kRotaryFrequencies,
          .read = read_phi,
          .write = write_phi};
}

}  // namespace

const std::vector<HuggingFaceFamily>& hugging_face_families() {
  static const std::vector<HuggingFaceFamily> families = {gpt2(),
                                                          hugging_face_llama(),
                                                          hugging_face_mistral(),
                                                          hugging_face_qwen2(),
                                                          hugging_face_qwen3(),
                                                          hugging_face_gemma(),
                                                          opt(),
                                                          gpt_neox(),
                                                          bloom(),
                                                          phi(),
                                                          hugging_face_megatron_bert(),
                                                          hugging_face_bert(),
                                                          hugging_face_t5(),
                                                          hugging_face_mt5(),
                                                          hugging_face_mixtral(),
                                                          hugging_face_qwen3_moe(),
                                                          hugging_face_qwen2_moe()};
  return families;
}

}  // namespace megatron

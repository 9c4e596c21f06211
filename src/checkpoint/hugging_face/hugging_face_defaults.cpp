#include <map>

#include "checkpoint/hugging_face/hugging_face_families.h"

namespace megatron {

namespace {

using nlohmann::json;

json with(json keys, const json& others) {
  keys.update(others);
  return keys;
}

const json kGpt2 = {{"vocab_size", 50257},
                    {"n_positions", 1024},
                    {"n_embd", 768},
                    {"n_layer", 12},
                    {"n_head", 12},
                    {"n_inner", nullptr},
                    {"activation_function", "gelu_new"},
                    {"resid_pdrop", 0.1},
                    {"embd_pdrop", 0.1},
                    {"attn_pdrop", 0.1},
                    {"layer_norm_epsilon", 1e-5},
                    {"initializer_range", 0.02},
                    {"scale_attn_weights", true},
                    {"scale_attn_by_inverse_layer_idx", false},
                    {"reorder_and_upcast_attn", false},
                    {"add_cross_attention", false},
                    {"tie_word_embeddings", true}};

const json kLlama = {{"vocab_size", 32000},       {"hidden_size", 4096},       {"intermediate_size", 11008},
                     {"num_hidden_layers", 32},   {"num_attention_heads", 32}, {"num_key_value_heads", nullptr},
                     {"head_dim", nullptr},       {"hidden_act", "silu"},      {"max_position_embeddings", 2048},
                     {"initializer_range", 0.02}, {"rms_norm_eps", 1e-6},      {"tie_word_embeddings", false},
                     {"rope_theta", 10000.0},     {"rope_scaling", nullptr},   {"partial_rotary_factor", 1.0},
                     {"attention_bias", false},   {"attention_dropout", 0.0},  {"mlp_bias", false}};

/// Without the biases that only Llama names.
const json kUnbiased = [] {
  json keys = kLlama;
  keys.erase("attention_bias");
  keys.erase("mlp_bias");
  return keys;
}();

const json kMistral = with(kUnbiased, {{"intermediate_size", 14336},
                                       {"num_key_value_heads", 8},
                                       {"max_position_embeddings", 131072},
                                       {"sliding_window", 4096}});

const json kMixtral = with(kMistral, {{"rms_norm_eps", 1e-5},
                                      {"rope_theta", 1e6},
                                      {"sliding_window", nullptr},
                                      {"num_experts_per_tok", 2},
                                      {"num_local_experts", 8},
                                      {"output_router_logits", false},
                                      {"router_aux_loss_coef", 0.001},
                                      {"router_jitter_noise", 0.0}});

const json kQwen2 = with(kUnbiased, {{"vocab_size", 151936},
                                     {"intermediate_size", 22016},
                                     {"num_key_value_heads", 32},
                                     {"max_position_embeddings", 32768},
                                     {"use_sliding_window", false},
                                     {"sliding_window", 4096},
                                     {"max_window_layers", 28},
                                     {"layer_types", nullptr}});

const json kQwen3 = with(kQwen2, {{"head_dim", 128}, {"attention_bias", false}});

const json kQwen2Moe = with(kQwen2, {{"hidden_size", 2048},
                                     {"intermediate_size", 5632},
                                     {"num_hidden_layers", 24},
                                     {"num_attention_heads", 16},
                                     {"num_key_value_heads", 16},
                                     {"decoder_sparse_step", 1},
                                     {"moe_intermediate_size", 1408},
                                     {"shared_expert_intermediate_size", 5632},
                                     {"num_experts_per_tok", 4},
                                     {"num_experts", 60},
                                     {"norm_topk_prob", false},
                                     {"output_router_logits", false},
                                     {"router_aux_loss_coef", 0.001},
                                     {"mlp_only_layers", nullptr},
                                     {"qkv_bias", true}});

const json kQwen3Moe = [] {
  json keys = with(kQwen2Moe, {{"intermediate_size", 6144},
                               {"num_attention_heads", 32},
                               {"num_key_value_heads", 4},
                               {"attention_bias", false},
                               {"moe_intermediate_size", 768},
                               {"num_experts_per_tok", 8},
                               {"num_experts", 128}});
  keys.erase("shared_expert_intermediate_size");
  keys.erase("qkv_bias");
  return keys;
}();

const json kGemma = [] {
  json keys = with(kLlama, {{"vocab_size", 256000},
                            {"hidden_size", 3072},
                            {"intermediate_size", 24576},
                            {"num_hidden_layers", 28},
                            {"num_attention_heads", 16},
                            {"num_key_value_heads", 16},
                            {"head_dim", 256},
                            {"hidden_act", "gelu_pytorch_tanh"},
                            {"max_position_embeddings", 8192},
                            {"tie_word_embeddings", true},
                            {"use_bidirectional_attention", nullptr}});
  keys.erase("mlp_bias");
  return keys;
}();

const json kOpt = {{"vocab_size", 50272},
                   {"hidden_size", 768},
                   {"num_hidden_layers", 12},
                   {"ffn_dim", 3072},
                   {"num_attention_heads", 12},
                   {"max_position_embeddings", 2048},
                   {"do_layer_norm_before", true},
                   {"_remove_final_layer_norm", false},
                   {"word_embed_proj_dim", nullptr},
                   {"dropout", 0.1},
                   {"attention_dropout", 0.0},
                   {"layerdrop", 0.0},
                   {"activation_function", "relu"},
                   {"init_std", 0.02},
                   {"enable_bias", true},
                   {"layer_norm_elementwise_affine", true},
                   {"tie_word_embeddings", true}};

const json kGptNeox = {{"vocab_size", 50432},       {"hidden_size", 6144},         {"num_hidden_layers", 44},
                       {"num_attention_heads", 64}, {"intermediate_size", 24576},  {"hidden_act", "gelu"},
                       {"rotary_pct", 0.25},        {"rotary_emb_base", 10000},    {"rope_scaling", nullptr},
                       {"attention_dropout", 0.0},  {"hidden_dropout", 0.0},       {"max_position_embeddings", 2048},
                       {"initializer_range", 0.02}, {"layer_norm_eps", 1e-5},      {"use_parallel_residual", true},
                       {"is_decoder", false},  // changes nothing
                       {"attention_bias", true},    {"tie_word_embeddings", false}};

const json kBloom = {{"vocab_size", 250880},
                     {"hidden_size", 64},
                     {"n_layer", 2},
                     {"n_head", 8},
                     {"seq_length", 2048},  // unknown to the class, as ALiBi has any number of positions
                     {"layer_norm_epsilon", 1e-5},
                     {"initializer_range", 0.02},
                     {"apply_residual_connection_post_layernorm", false},
                     {"hidden_dropout", 0.0},
                     {"attention_dropout", 0.0},
                     {"tie_word_embeddings", true}};

const json kPhi = {{"vocab_size", 51200},         {"hidden_size", 2048},          {"intermediate_size", 8192},
                   {"num_hidden_layers", 24},     {"num_attention_heads", 32},    {"num_key_value_heads", nullptr},
                   {"head_dim", nullptr},         {"resid_pdrop", 0.0},           {"embd_pdrop", 0.0},
                   {"attention_dropout", 0.0},    {"hidden_act", "gelu_new"},     {"max_position_embeddings", 2048},
                   {"initializer_range", 0.02},   {"layer_norm_eps", 1e-5},       {"rope_theta", 10000.0},
                   {"rope_scaling", nullptr},     {"partial_rotary_factor", 0.5}, {"qk_layernorm", false},
                   {"tie_word_embeddings", false}};

const json kBert = {{"vocab_size", 30522},
                    {"hidden_size", 768},
                    {"num_hidden_layers", 12},
                    {"num_attention_heads", 12},
                    {"intermediate_size", 3072},
                    {"hidden_act", "gelu"},
                    {"hidden_dropout_prob", 0.1},
                    {"attention_probs_dropout_prob", 0.1},
                    {"max_position_embeddings", 512},
                    {"type_vocab_size", 2},
                    {"initializer_range", 0.02},
                    {"layer_norm_eps", 1e-12},
                    {"position_embedding_type", "absolute"},
                    {"is_decoder", false},
                    {"add_cross_attention", false},
                    {"tie_word_embeddings", true}};

const json kMegatronBert = with(kBert, {{"vocab_size", 29056},
                                        {"hidden_size", 1024},
                                        {"num_hidden_layers", 24},
                                        {"num_attention_heads", 16},
                                        {"intermediate_size", 4096}});

const json kT5 = {{"vocab_size", 32128},
                  {"d_model", 512},
                  {"d_kv", 64},
                  {"d_ff", 2048},
                  {"num_layers", 6},
                  {"num_decoder_layers", nullptr},
                  {"num_heads", 8},
                  {"n_positions", 512},  // unknown to the class, as distances have no end
                  {"relative_attention_num_buckets", 32},
                  {"relative_attention_max_distance", 128},
                  {"dropout_rate", 0.1},
                  {"layer_norm_epsilon", 1e-6},
                  {"initializer_factor", 1.0},
                  {"feed_forward_proj", "relu"},
                  {"is_encoder_decoder", true},
                  {"is_decoder", false},
                  {"tie_word_embeddings", true}};

/// "tie_word_embeddings" is that of transformers 4. Version 5 reads a file without the key alike, since the head in the
/// files counts.
const json kMt5 = with(kT5, {{"vocab_size", 250112},
                             {"d_ff", 1024},
                             {"num_layers", 8},
                             {"num_heads", 6},
                             {"n_positions", 1024},
                             {"feed_forward_proj", "gated-gelu"},
                             {"tie_word_embeddings", false}});

using Names = std::vector<const char*>;
using Aliases = std::vector<std::pair<const char*, const char*>>;

const Names kGroups = {"num_key_value_heads"}, kWindow = {"num_key_value_heads", "sliding_window"};

/// Mixtral's name first, as its files have only that one.
const Aliases kExperts = {{"num_experts", "num_local_experts"}};

const Aliases kT5Names = {{"d_model", "hidden_size"},
                          {"num_heads", "num_attention_heads"},
                          {"num_layers", "num_hidden_layers"},
                          {"d_kv", "head_dim"}};

}  // namespace

HuggingFaceDefaults hugging_face_defaults(const std::string& family) {
  static const std::map<std::string, HuggingFaceDefaults> tables = {
      {"gpt2",
       {kGpt2,
        {},
        {{"n_embd", "hidden_size"},
         {"n_layer", "num_hidden_layers"},
         {"n_head", "num_attention_heads"},
         {"n_positions", "max_position_embeddings"}}}},
      {"llama", {kLlama}},
      {"mistral", {kMistral, kWindow}},
      {"qwen2", {kQwen2, kWindow}},
      {"qwen3", {kQwen3, kWindow}},
      {"gemma", {kGemma}},
      {"opt", {kOpt}},
      {"gpt_neox", {kGptNeox}},
      {"bloom",
       {kBloom,
        {"n_embed"},
        {{"hidden_size", "n_embed"}, {"n_layer", "num_hidden_layers"}, {"n_head", "num_attention_heads"}}}},
      {"phi", {kPhi}},
      {"megatron-bert", {kMegatronBert}},
      {"bert", {kBert}},
      {"t5", {kT5, {}, kT5Names}},
      {"mt5", {kMt5, {}, kT5Names}},
      {"mixtral", {kMixtral, kGroups, {{"num_local_experts", "num_experts"}}}},
      {"qwen3_moe", {kQwen3Moe, {"sliding_window"}, kExperts}},
      {"qwen2_moe", {kQwen2Moe, {"sliding_window"}, kExperts}}};
  return tables.at(family);
}

}  // namespace megatron

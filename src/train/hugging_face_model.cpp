#include "train/hugging_face_model.h"

#include <fmt/ranges.h>

#include <charconv>
#include <map>

#include "base/error.h"
#include "checkpoint/manifest.h"
#include "config/parse.h"
#include "config/print.h"
#include "config/resolve.h"
#include "config/unsupported.h"

namespace megatron {

namespace {

using nlohmann::json;

/// Their names of activation functions. Of a gated part: of its gate.
const std::map<std::string, std::string>& activations(ForeignFormat format) {
  static const std::map<std::string, std::string> gpt2 = {
      {"gelu", "gelu_new"}, {"gelu_exact", "gelu"}, {"relu", "relu"}};
  static const std::map<std::string, std::string> llama = {{"swiglu", "silu"}, {"geglu", "gelu_pytorch_tanh"}};
  return format == ForeignFormat::gpt2 ? gpt2 : llama;
}

std::string join(const std::vector<std::string>& lines) {
  return fmt::format("{}", fmt::join(lines, "\n  "));
}

/// Everything of a model that a format has no place for.
std::vector<std::string> obstacles(const ModelConfig& model, ForeignFormat format) {
  std::vector<std::string> found;
  const auto want = [&](bool holds, const char* text) {
    if (!holds) found.push_back(fmt::format("{}: {}", name_of(format), text));
  };
  want(activations(format).contains(model.activation), format == ForeignFormat::gpt2
                                                           ? "model.activation must be gelu, gelu_exact or relu"
                                                           : "model.activation must be swiglu or geglu");
  want(!model.query_key_norm, "model.query_key_norm must be false");
  if (format == ForeignFormat::gpt2) {
    want(model.position_embedding == "learned", "model.position_embedding must be \"learned\"");
    want(model.normalization == "layernorm", "model.normalization must be \"layernorm\"");
    want(model.bias, "model.bias must be true");
    want(model.query_groups == model.attention_heads, "model.query_groups must be model.attention_heads");
  } else {
    want(model.position_embedding == "rope", "model.position_embedding must be \"rope\"");
    want(model.rotary_fraction == 1, "model.rotary_fraction must be 1");
    want(model.normalization == "rmsnorm", "model.normalization must be \"rmsnorm\"");
  }
  return found;
}

}  // namespace

const char* name_of(ForeignFormat format) {
  return format == ForeignFormat::gpt2 ? "gpt2" : "llama";
}

ForeignFormat format_of(const ModelConfig& model) {
  std::vector<std::string> all;
  for (const ForeignFormat format : {ForeignFormat::gpt2, ForeignFormat::llama}) {
    const std::vector<std::string> found = obstacles(model, format);
    if (found.empty()) return format;
    all.insert(all.end(), found.begin(), found.end());
  }
  fail(ErrorKind::configuration, "Hugging Face has no model of this kind that we know to write:\n  {}", join(all));
}

void require_format(const ModelConfig& model, ForeignFormat format) {
  const std::vector<std::string> found = obstacles(model, format);
  verify(found.empty(), ErrorKind::configuration, "the model cannot be written in this format:\n  {}", join(found));
}

json foreign_config(const ModelConfig& model, ForeignFormat format, const char* dtype) {
  json config = {{"vocab_size", model.vocab_size},
                 {"initializer_range", model.init_std},
                 {"tie_word_embeddings", model.tie_embeddings},
                 {"torch_dtype", dtype},
                 {"use_cache", true}};
  if (format == ForeignFormat::gpt2) {
    config.update({{"model_type", "gpt2"},
                   {"architectures", {"GPT2LMHeadModel"}},
                   {"n_embd", model.hidden_size},
                   {"n_layer", model.layers},
                   {"n_head", model.attention_heads},
                   {"n_inner", model.ffn_hidden_size},
                   {"n_positions", model.max_position_embeddings},
                   {"activation_function", activations(format).at(model.activation)},
                   {"layer_norm_epsilon", model.norm_epsilon},
                   {"embd_pdrop", model.hidden_dropout},
                   {"resid_pdrop", model.hidden_dropout},
                   {"attn_pdrop", model.attention_dropout}});
    return config;
  }
  config.update({{"model_type", "llama"},
                 {"architectures", {"LlamaForCausalLM"}},
                 {"hidden_size", model.hidden_size},
                 {"intermediate_size", model.ffn_hidden_size},
                 {"num_hidden_layers", model.layers},
                 {"num_attention_heads", model.attention_heads},
                 {"num_key_value_heads", model.query_groups},
                 {"head_dim", model.head_size()},
                 {"max_position_embeddings", model.max_position_embeddings},
                 {"hidden_act", activations(format).at(model.activation)},
                 {"rms_norm_eps", model.norm_epsilon},
                 {"attention_bias", model.bias},
                 {"mlp_bias", model.bias},
                 {"attention_dropout", model.attention_dropout},
                 {"rope_theta", model.rotary_base},
                 {"rope_scaling", nullptr}});
  const RotaryScalingConfig& scaling = model.rotary_scaling;
  if (scaling.type == "linear") config["rope_scaling"] = {{"rope_type", "linear"}, {"factor", scaling.factor}};
  if (scaling.type == "llama3") {
    config["rope_scaling"] = {{"rope_type", "llama3"},
                              {"factor", scaling.factor},
                              {"low_freq_factor", scaling.low_frequency_factor},
                              {"high_freq_factor", scaling.high_frequency_factor},
                              {"original_max_position_embeddings", scaling.original_length}};
  }
  return config;
}

namespace {

constexpr std::int64_t kMost = 1 << 24;  // of any size, so that no product of two overflows

/// A stranger's config.json, of which keys may be absent or null.
class ForeignKeys {
 public:
  explicit ForeignKeys(const json& config) : config_(config) {}

  bool has(const char* key) const { return config_.contains(key) && !config_.at(key).is_null(); }
  std::int64_t size(const char* key) const { return integer_at(config_, key, 1, kMost); }
  std::int64_t size(const char* key, std::int64_t otherwise) const { return has(key) ? size(key) : otherwise; }
  double number(const char* key, double otherwise) const { return has(key) ? number_at(config_, key) : otherwise; }
  std::string text(const char* key, const char* otherwise) const {
    return has(key) ? text_at(config_, key, 100) : otherwise;
  }
  bool flag(const char* key, bool otherwise) const {
    if (!has(key)) return otherwise;
    verify(config_.at(key).is_boolean(), ErrorKind::checkpoint, "\"{}\" is not a truth value", key);
    return config_.at(key).get<bool>();
  }
  /// It must have this value, or be absent.
  void require(const char* key, bool value) const {
    verify(flag(key, value) == value, ErrorKind::checkpoint, "\"{}\": {} is no model that can be trained here", key,
           !value);
  }
  json object(const char* key) const { return has(key) ? object_at(config_, key) : json::object(); }

 private:
  const json& config_;
};

std::string our_activation(const std::string& theirs, ForeignFormat format) {
  for (const auto& [ours, name] : activations(format)) {
    if (name == theirs) return ours;
  }
  if (format == ForeignFormat::gpt2 && (theirs == "gelu_pytorch_tanh" || theirs == "gelu_fast")) return "gelu";
  fail(ErrorKind::checkpoint, "the activation \"{}\" is none of ours", theirs);
}

void read_gpt2(const ForeignKeys& keys, ModelConfig& model) {
  for (const char* key : {"scale_attn_by_inverse_layer_idx", "add_cross_attention"}) keys.require(key, false);
  keys.require("scale_attn_weights", true);
  model.hidden_size = keys.size("n_embd");
  model.layers = keys.size("n_layer");
  model.attention_heads = model.query_groups = keys.size("n_head");
  model.ffn_hidden_size = keys.size("n_inner", 4 * model.hidden_size);
  model.max_position_embeddings = keys.size("n_positions");
  model.activation = our_activation(keys.text("activation_function", "gelu_new"), ForeignFormat::gpt2);
  model.norm_epsilon = keys.number("layer_norm_epsilon", 1e-5);
  model.hidden_dropout = keys.number("resid_pdrop", 0.1);
  model.attention_dropout = keys.number("attn_pdrop", 0.1);
  model.tie_embeddings = keys.flag("tie_word_embeddings", true);
}

/// Of older files rope_theta and rope_scaling, of newer ones rope_parameters with both.
void read_rotation(const ForeignKeys& keys, ModelConfig& model) {
  const json both = keys.has("rope_parameters") ? keys.object("rope_parameters") : keys.object("rope_scaling");
  const ForeignKeys rotation(both);
  model.rotary_base = rotation.number("rope_theta", keys.number("rope_theta", 10000));
  model.rotary_fraction = rotation.number("partial_rotary_factor", keys.number("partial_rotary_factor", 1));
  const std::string type = rotation.text("rope_type", rotation.text("type", "default").c_str());
  if (type == "default") return;
  RotaryScalingConfig& scaling = model.rotary_scaling;
  scaling.type = type;
  verify(type == "linear" || type == "llama3", ErrorKind::checkpoint, "rotary scaling of type \"{}\" is none of ours",
         type);
  scaling.factor = number_at(both, "factor");
  if (type == "linear") return;
  scaling.low_frequency_factor = number_at(both, "low_freq_factor");
  scaling.high_frequency_factor = number_at(both, "high_freq_factor");
  scaling.original_length = integer_at(both, "original_max_position_embeddings", 1, kMost);
}

void read_llama(const ForeignKeys& keys, ModelConfig& model) {
  model.hidden_size = keys.size("hidden_size");
  model.layers = keys.size("num_hidden_layers");
  model.attention_heads = keys.size("num_attention_heads");
  model.query_groups = keys.size("num_key_value_heads", model.attention_heads);
  model.ffn_hidden_size = keys.size("intermediate_size");
  model.max_position_embeddings = keys.size("max_position_embeddings");
  model.activation = our_activation(keys.text("hidden_act", "silu"), ForeignFormat::llama);
  model.norm_epsilon = keys.number("rms_norm_eps", 1e-6);
  model.normalization = "rmsnorm";
  model.position_embedding = "rope";
  model.bias = keys.flag("attention_bias", false);
  verify(keys.flag("mlp_bias", false) == model.bias, ErrorKind::checkpoint,
         "\"attention_bias\" and \"mlp_bias\" differ; here a model has both or none");
  verify(keys.size("head_dim", model.hidden_size / model.attention_heads) * model.attention_heads == model.hidden_size,
         ErrorKind::checkpoint, "\"head_dim\" times \"num_attention_heads\" is not \"hidden_size\"");
  model.hidden_dropout = 0;
  model.attention_dropout = keys.number("attention_dropout", 0);
  model.tie_embeddings = keys.flag("tie_word_embeddings", false);
  read_rotation(keys, model);
}

/// What export adds for import.
void read_own(const json& own, ForeignModel& foreign) {
  foreign.model.sequence_length = integer_at(own, "sequence_length", 1, foreign.model.max_position_embeddings);
  foreign.model.vocab_multiple = integer_at(own, "vocab_multiple", 1, 1 << 20);
  if (!own.contains("tokenizer")) return;
  Vocabulary vocabulary;
  vocabulary.tokenizer = text_at(own, "tokenizer", 64);
  vocabulary.size = static_cast<std::uint64_t>(integer_at(own, "vocab_size", 1, kMost));
  const std::string hash = text_at(own, "tokenizer_hash", 16);
  const char* end = hash.data() + hash.size();
  verify(std::from_chars(hash.data(), end, vocabulary.hash, 16).ptr == end, ErrorKind::checkpoint,
         "\"tokenizer_hash\" is no hexadecimal number");
  foreign.vocabulary = vocabulary;
}

}  // namespace

ForeignModel parse_foreign_config(const json& config, std::int64_t tensors) {
  verify(config.is_object(), ErrorKind::checkpoint, "it is no object");
  const ForeignKeys keys(config);
  ForeignModel foreign;
  const std::string type = keys.text("model_type", "");
  verify(type == "gpt2" || type == "llama", ErrorKind::checkpoint,
         "\"model_type\" is \"{}\"; gpt2 and llama can be imported", type);
  foreign.format = type == "gpt2" ? ForeignFormat::gpt2 : ForeignFormat::llama;
  foreign.vocab_rows = keys.size("vocab_size");
  ModelConfig& model = foreign.model;
  model.vocab_size = foreign.vocab_rows;
  model.init_std = keys.number("initializer_range", 0.02);
  foreign.format == ForeignFormat::gpt2 ? read_gpt2(keys, model) : read_llama(keys, model);
  verify(model.layers <= tensors, ErrorKind::checkpoint, "{} layers, and the files have {} tensors", model.layers,
         tensors);
  model.sequence_length = model.max_position_embeddings;
  if (keys.has(kOwnConfigKey)) read_own(keys.object(kOwnConfigKey), foreign);
  return foreign;
}

Config config_of(const ForeignModel& foreign) try {
  Config config;
  config.model = foreign.model;
  config.train.steps = config.train.global_batch_size = 1;
  config.learning_rate.decay = "constant";
  config.data.train = "imported";
  resolve(config, 1, nullptr);
  refuse_what_is_to_come(config);
  parse_config_text(print_config(config), "as a configuration of ours");  // what single keys may be
  return config;
} catch (const Error& error) {  // whichever rule it is, a stranger's file breaks it
  if (error.kind() != ErrorKind::configuration) throw;
  fail(ErrorKind::checkpoint, "{}", error.what());
}

}  // namespace megatron

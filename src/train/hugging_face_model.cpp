#include "train/hugging_face_model.h"

#include <fmt/ranges.h>

#include <map>

#include "base/error.h"
#include "checkpoint/manifest.h"

namespace megatron {

namespace {

using nlohmann::json;
using Record = ForeignTensor::Record;

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

/// Puts together the list of tensors.
class Tensors {
 public:
  Tensors(std::vector<ForeignTensor>& tensors, const ModelConfig& model, std::int64_t vocab_rows)
      : tensors_(tensors), padded_(model.padded_vocab()), vocab_rows_(vocab_rows) {}

  void vector(const std::string& theirs, const std::string& ours, std::int64_t size) {
    tensors_.push_back({theirs, {size}, false, {{ours, {size}, {size}, 0}}});
  }
  void matrix(const std::string& theirs, const std::string& ours, std::int64_t out, std::int64_t in, bool transposed) {
    stacked(theirs, {ours}, {out}, in, transposed);
  }
  void vocabulary(const std::string& theirs, const std::string& ours, std::int64_t width) {
    tensors_.push_back(
        {theirs, {vocab_rows_, width}, false, {{ours, {std::min(vocab_rows_, padded_), width}, {padded_, width}, 0}}});
  }
  /// Several records below each other; `in` 0: vectors.
  void stacked(const std::string& theirs, const std::vector<std::string>& ours, const std::vector<std::int64_t>& rows,
               std::int64_t in, bool transposed) {
    ForeignTensor tensor{theirs, {}, transposed, {}};
    std::int64_t sum = 0;
    for (std::size_t i = 0; i < ours.size(); ++i) {
      const Shape shape = in == 0 ? Shape{rows[i]} : Shape{rows[i], in};
      tensor.records.push_back({ours[i], shape, shape, sum});
      sum += rows[i];
    }
    tensor.shape = {sum};
    if (in > 0) tensor.shape.insert(transposed ? tensor.shape.begin() : tensor.shape.end(), in);
    tensors_.push_back(std::move(tensor));
  }

 private:
  std::vector<ForeignTensor>& tensors_;
  std::int64_t padded_, vocab_rows_;
};

void list_gpt2(const ModelConfig& model, Tensors& list) {
  const std::int64_t h = model.hidden_size, f = model.ffn_hidden_size;
  list.vocabulary("transformer.wte.weight", "embedding.word.weight", h);
  list.matrix("transformer.wpe.weight", "embedding.position.weight", model.max_position_embeddings, h, false);
  for (std::int64_t layer = 0; layer < model.layers; ++layer) {
    const std::string theirs = fmt::format("transformer.h.{}.", layer), ours = fmt::format("layers.{}.", layer);
    const auto named = [&](const char* kind) {
      std::vector<std::string> names;
      for (const char* part : {"query", "key", "value"}) names.push_back(ours + "attention." + part + "." + kind);
      return names;
    };
    for (const char* kind : {"weight", "bias"}) {
      list.vector(theirs + "ln_1." + kind, ours + "attention_norm." + kind, h);
      list.vector(theirs + "ln_2." + kind, ours + "mlp_norm." + kind, h);
    }
    list.stacked(theirs + "attn.c_attn.weight", named("weight"), {h, h, h}, h, true);
    list.stacked(theirs + "attn.c_attn.bias", named("bias"), {h, h, h}, 0, false);
    list.matrix(theirs + "attn.c_proj.weight", ours + "attention.output.weight", h, h, true);
    list.vector(theirs + "attn.c_proj.bias", ours + "attention.output.bias", h);
    list.matrix(theirs + "mlp.c_fc.weight", ours + "mlp.up.weight", f, h, true);
    list.vector(theirs + "mlp.c_fc.bias", ours + "mlp.up.bias", f);
    list.matrix(theirs + "mlp.c_proj.weight", ours + "mlp.down.weight", h, f, true);
    list.vector(theirs + "mlp.c_proj.bias", ours + "mlp.down.bias", h);
  }
  list.vector("transformer.ln_f.weight", "final_norm.weight", h);
  list.vector("transformer.ln_f.bias", "final_norm.bias", h);
}

void list_llama(const ModelConfig& model, Tensors& list) {
  const std::int64_t h = model.hidden_size, f = model.ffn_hidden_size;
  const std::int64_t groups = model.query_groups * model.head_size();
  list.vocabulary("model.embed_tokens.weight", "embedding.word.weight", h);
  for (std::int64_t layer = 0; layer < model.layers; ++layer) {
    const std::string theirs = fmt::format("model.layers.{}.", layer), ours = fmt::format("layers.{}.", layer);
    const auto linear = [&](const char* their, const char* our, std::int64_t out, std::int64_t in) {
      list.matrix(theirs + their + ".weight", ours + our + ".weight", out, in, false);
      if (model.bias) list.vector(theirs + their + ".bias", ours + our + ".bias", out);
    };
    list.vector(theirs + "input_layernorm.weight", ours + "attention_norm.weight", h);
    list.vector(theirs + "post_attention_layernorm.weight", ours + "mlp_norm.weight", h);
    linear("self_attn.q_proj", "attention.query", h, h);
    linear("self_attn.k_proj", "attention.key", groups, h);
    linear("self_attn.v_proj", "attention.value", groups, h);
    linear("self_attn.o_proj", "attention.output", h, h);
    linear("mlp.gate_proj", "mlp.gate", f, h);
    linear("mlp.up_proj", "mlp.up", f, h);
    linear("mlp.down_proj", "mlp.down", h, f);
  }
  list.vector("model.norm.weight", "final_norm.weight", h);
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

std::vector<ForeignTensor> foreign_tensors(const ModelConfig& model, ForeignFormat format, std::int64_t vocab_rows) {
  std::vector<ForeignTensor> tensors;
  Tensors list(tensors, model, vocab_rows);
  format == ForeignFormat::gpt2 ? list_gpt2(model, list) : list_llama(model, list);
  if (!model.tie_embeddings) list.vocabulary("lm_head.weight", "head.weight", model.hidden_size);
  return tensors;
}

bool is_derived(const std::string& name, ForeignFormat format) {
  if (format == ForeignFormat::llama) return name.ends_with(".rotary_emb.inv_freq");
  return name.starts_with("transformer.h.") && (name.ends_with(".attn.bias") || name.ends_with(".attn.masked_bias"));
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

constexpr std::int64_t kMost = std::int64_t{1} << 40;

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

}  // namespace

ForeignModel parse_foreign_config(const json& config) {
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
  model.sequence_length = model.max_position_embeddings;
  return foreign;
}

}  // namespace megatron

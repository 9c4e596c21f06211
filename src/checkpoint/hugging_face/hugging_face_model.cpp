#include "checkpoint/hugging_face/hugging_face_model.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>

#include "base/core/error.h"
#include "base/text/foreign_json.h"
#include "base/text/text.h"
#include "checkpoint/hugging_face/hugging_face_families.h"
#include "config/parse/parse.h"
#include "config/rules/resolve.h"
#include "config/schema/print.h"
#include "config/schema/schema.h"

namespace megatron {

namespace {

using nlohmann::json;

/// Keys in which models of every family differ, or that do not belong to a model's form: they are read and written by
/// HuggingFaceSizes, or by the families themselves where positions are rotations.
constexpr std::string_view kSizeKeys[] = {"preset",
                                          "layers",
                                          "hidden_size",
                                          "attention_heads",
                                          "head_size",
                                          "query_groups",
                                          "rotary_base",
                                          "ffn_hidden_size",
                                          "max_position_embeddings",
                                          "sequence_length",
                                          "rotary_scaling",
                                          "vocab_size",
                                          "vocab_multiple",
                                          "norm_epsilon",
                                          "init_std",
                                          "hidden_dropout",
                                          "attention_dropout",
                                          "head_chunks"};

/// Keys of [moe] that belong to a model's form.
constexpr std::string_view kMoeKeys[] = {"every", "layers", "renormalize", "shared_gate", "residual"};

std::string in_words(const std::vector<std::string>& names) {
  if (names.size() == 1) return names[0];
  return fmt::format("{} or {}", fmt::join(names.begin(), names.end() - 1, ", "), names.back());
}

/// Lists what an input file would have to say for the model to be of this family.
std::vector<std::string> obstacles(const ModelConfig& model, const HuggingFaceFamily& family) {
  if (model.family != family.form.family) return {fmt::format("model.family must be \"{}\"", family.form.family)};
  std::vector<std::string> found;
  Config ours, form;
  ours.model = model;
  form.model = family.form;
  const bool experts = family.names.router != nullptr;
  const auto in_form = [&](const Key& key) {
    if (key.table == "moe") {
      return experts && std::find(std::begin(kMoeKeys), std::end(kMoeKeys), key.name) != std::end(kMoeKeys);
    }
    return key.table == "model" &&
           std::find(std::begin(kSizeKeys), std::end(kSizeKeys), key.name) == std::end(kSizeKeys);
  };
  for (const Key& key : schema()) {
    if (!in_form(key)) continue;
    const auto free = std::find_if(family.free.begin(), family.free.end(),
                                   [&](const FreeKey& candidate) { return candidate.key == key.name; });
    std::vector<std::string> allowed = {print_value(key, form)};
    if (free != family.free.end()) allowed.assign(free->values.begin(), free->values.end());
    if (allowed.empty() || std::find(allowed.begin(), allowed.end(), print_value(key, ours)) != allowed.end()) continue;
    found.push_back(fmt::format("{} must be {}", key.full_name(), allowed[0].empty() ? "left out" : in_words(allowed)));
  }
  const auto want = [&](bool holds, const char* text) {
    if (!holds) found.emplace_back(text);
  };
  want((model.moe.experts > 0) == experts, experts ? "moe.experts must be given" : "moe.experts must be left out");
  want(model.moe.bias_rate == 0, "moe.bias_rate must be left out, since the form has no place for a choice bias");
  const bool shared = family.names.shared_expert != nullptr;
  want((model.moe.shared_experts > 0) == shared,
       shared ? "moe.shared_experts must be given" : "moe.shared_experts must be left out");
  const HuggingFaceSizes& sizes = family.sizes;
  want(sizes.groups != nullptr || model.query_groups == model.attention_heads,
       "model.query_groups must be model.attention_heads");
  want(sizes.head_size != nullptr || model.head_size() * model.attention_heads == model.hidden_size,
       "model.head_size must be model.hidden_size / model.attention_heads");
  want(sizes.ffn != nullptr || model.ffn_hidden_size == 4 * model.hidden_size,
       "model.ffn_hidden_size must be 4 · model.hidden_size");
  if (sizes.epsilon == nullptr && model.norm_epsilon != family.form.norm_epsilon) {
    found.push_back(fmt::format("model.norm_epsilon must be {}", family.form.norm_epsilon));
  }
  return found;
}

/// Their name of an activation. Of a gated part: of its gate.
const char* hugging_face_activation(const std::string& ours) {
  return row_named(kActivations, ours).hugging_face;
}

/// One of the names that they have for the same function.
std::string_view one_name(std::string_view theirs) {
  if (theirs == "gelu_pytorch_tanh" || theirs == "gelu_fast") return "gelu_new";
  return theirs == "swish" ? "silu" : theirs;
}

}  // namespace

bool same_hugging_face_activation(std::string_view a, std::string_view b) {
  return one_name(a) == one_name(b);
}

namespace {

std::string our_activation(const std::string& theirs, const HuggingFaceFamily& family) {
  for (const ActivationRow& row : kActivations) {
    if (row.hugging_face == nullptr || row.gated != family.form.gated()) continue;
    if (same_hugging_face_activation(row.hugging_face, theirs)) return std::string(row.name);
  }
  // transformers 4.57 computes a Gemma's "gelu" exactly, and 5 in its tanh form.
  const char* other = theirs == "gelu" ? "; \"gelu_pytorch_tanh\" is, with which Gemma was trained" : "";
  fail(ErrorKind::checkpoint, "the activation \"{}\" is not supported{}", theirs,
       family.form.gated() ? std::string(" with a gate") + other : "");
}

}  // namespace

std::vector<HuggingFaceFormat> hugging_face_formats() {
  std::vector<HuggingFaceFormat> formats;
  for (std::size_t i = 0; i < hugging_face_families().size(); ++i) formats.push_back(static_cast<HuggingFaceFormat>(i));
  return formats;
}

const char* name_of(HuggingFaceFormat format) {
  return family_of(format).name;
}

std::string names_of_formats() {
  std::vector<std::string> names;
  for (const HuggingFaceFamily& family : hugging_face_families()) names.emplace_back(family.name);
  return in_words(names);
}

HuggingFaceFormat format_of(const ModelConfig& model) {
  std::string all;
  for (const HuggingFaceFormat format : hugging_face_formats()) {
    const std::vector<std::string> found = obstacles(model, family_of(format));
    if (found.empty()) return format;
    all += fmt::format("\n  {}: {}", name_of(format), fmt::join(found, "; "));
  }
  fail(ErrorKind::configuration, "Hugging Face has no model of this kind that we know to write:{}", all);
}

void require_format(const ModelConfig& model, HuggingFaceFormat format) {
  const std::vector<std::string> found = obstacles(model, family_of(format));
  verify(found.empty(), ErrorKind::configuration, "the model cannot be written in this format:\n  {}: {}",
         name_of(format), fmt::join(found, fmt::format("\n  {}: ", name_of(format))));
}

namespace {

/// Lists settings of experts that families with experts have no keys for.
std::vector<std::string> lost_of_experts(const MoeConfig& moe, HuggingFaceFormat format) {
  const MoeConfig standard;
  std::vector<std::string> keys;
  const bool dropless = moe.drops() == ExpertDrop::none;
  if (!dropless && moe.capacity_factor * static_cast<double>(moe.top_k) < static_cast<double>(moe.experts)) {
    keys.emplace_back("moe.capacity_factor");
  }
  if (moe.z_coefficient != standard.z_coefficient) keys.emplace_back("moe.z_coefficient");
  if (!dropless && moe.drop != standard.drop) keys.emplace_back("moe.drop");
  if (moe.jitter != standard.jitter) keys.emplace_back("moe.jitter");
  if (keys.empty()) return {};
  return {
      fmt::format("config.json of {} has no place for {}: an import drops no tokens; set "
                  "what you want where the model is trained further",
                  name_of(format), fmt::join(keys, ", "))};
}

}  // namespace

std::vector<std::string> lost_in_format(const ModelConfig& model, HuggingFaceFormat format) {
  std::vector<std::string> lost;
  if (model.moe.experts > 0) lost = lost_of_experts(model.moe, format);
  const HuggingFaceSizes& sizes = family_of(format).sizes;
  const std::string_view key = sizes.attention_dropout;
  const bool shared =
      std::find(sizes.hidden_dropout.begin(), sizes.hidden_dropout.end(), key) != sizes.hidden_dropout.end();
  if (!shared || model.attention_dropout == model.hidden_dropout) return lost;
  lost.push_back(
      fmt::format("config.json of {} has one dropout, \"{}\": it says model.hidden_dropout = {}, and "
                  "model.attention_dropout = {} is lost; set it where the model is trained further",
                  name_of(format), key, model.hidden_dropout, model.attention_dropout));
  return lost;
}

json hugging_face_config(const ModelConfig& model, HuggingFaceFormat format, const char* dtype) {
  const HuggingFaceFamily& family = family_of(format);
  const HuggingFaceSizes& sizes = family.sizes;
  json config = family.defaults.keys;  // so that no version fills in another one
  config.update({{"model_type", family.name},
                 {"architectures", {family.architecture}},
                 {"vocab_size", model.vocab_size},
                 {"tie_word_embeddings", model.tie_embeddings && !exports_head_copy(model, family)},
                 {"torch_dtype", dtype},
                 {"use_cache", true},
                 {sizes.hidden, model.hidden_size},
                 {sizes.layers, model.layers},
                 {sizes.heads, model.attention_heads},
                 {sizes.positions, model.max_position_embeddings},
                 {sizes.attention_dropout, model.attention_dropout}});
  if (sizes.initialization != nullptr) config[sizes.initialization] = model.init_std;
  if (sizes.groups != nullptr) config[sizes.groups] = model.query_groups;
  if (sizes.head_size != nullptr) config[sizes.head_size] = model.head_size();
  if (sizes.ffn != nullptr) config[sizes.ffn] = model.ffn_hidden_size;
  if (sizes.epsilon != nullptr) config[sizes.epsilon] = model.norm_epsilon;
  if (sizes.activation != nullptr) config[sizes.activation] = hugging_face_activation(model.activation);
  for (const char* key : sizes.hidden_dropout) config[key] = model.hidden_dropout;
  family.write(model, config);
  return config;
}

namespace {

/// The sizes that all families name.
void read_sizes(const HuggingFaceKeys& keys, const HuggingFaceFamily& family, ModelConfig& model) {
  const HuggingFaceSizes& sizes = family.sizes;
  model.hidden_size = keys.size(sizes.hidden);
  model.layers = keys.size(sizes.layers);
  model.attention_heads = model.query_groups = keys.size(sizes.heads);
  if (sizes.groups != nullptr) model.query_groups = keys.size(sizes.groups, model.attention_heads);
  if (sizes.head_size != nullptr) {
    const std::int64_t size = keys.size(sizes.head_size, 0);
    // hidden_size is a multiple of attention_heads, or it is refused by that rule
    const bool usual = size * model.attention_heads == model.hidden_size;
    model.given_head_size = usual ? 0 : size;
  }
  model.ffn_hidden_size = 4 * model.hidden_size;
  if (sizes.ffn != nullptr) model.ffn_hidden_size = keys.size(sizes.ffn, model.ffn_hidden_size);
  model.max_position_embeddings = keys.size(sizes.positions);
  if (sizes.epsilon != nullptr) model.norm_epsilon = keys.number(sizes.epsilon);
  if (sizes.activation != nullptr) model.activation = our_activation(keys.text(sizes.activation), family);
  if (!sizes.hidden_dropout.empty()) model.hidden_dropout = keys.number(sizes.hidden_dropout[0]);
  model.attention_dropout = keys.number(sizes.attention_dropout);
  if (sizes.initialization != nullptr) model.init_std = keys.number(sizes.initialization);
  model.tie_embeddings = keys.flag("tie_word_embeddings");
}

/// Weights that are stored in a quantized form.
void refuse_quantized(const HuggingFaceKeys& keys) {
  if (!keys.has("quantization_config")) return;
  const json quantization = keys.object("quantization_config");
  fail(ErrorKind::checkpoint,
       "\"quantization_config\": its weights are quantized (\"quant_method\": {}), and weights are read as fp32, bf16 "
       "or "
       "fp16 only; import the model that it was made from, or load it with transformers, call dequantize() and "
       "save_pretrained()",
       quantization.contains("quant_method") ? quantization.at("quant_method").dump().substr(0, 40) : "none given");
}

/// Keys of all families that change what a model computes.
void refuse_changed_models(const HuggingFaceKeys& keys) {
  for (const char* key : {"per_layer_config", "pruned_heads", "tie_encoder_decoder"}) {
    const json nothing[] = {nullptr, false, json::object()};
    verify(!keys.given(key) || std::count(std::begin(nothing), std::end(nothing), keys.value(key)) > 0,
           ErrorKind::checkpoint, "\"{}\": a model that it changes cannot be trained here", key);
  }
}

/// With the names that the family's table has, none of which says two things or nothing.
json with_usual_names(json config, const HuggingFaceDefaults& defaults) {
  const auto may_be_null = [&](const char* key) {
    const auto& list = defaults.may_be_null;
    return std::find_if(list.begin(), list.end(), [&](const std::string& name) { return name == key; }) != list.end();
  };
  for (const auto& [key, other] : defaults.aliases) {
    if (!config.contains(other) || (config.at(other).is_null() && may_be_null(other))) continue;
    verify(!config.contains(key) || config.at(key) == config.at(other), ErrorKind::checkpoint,
           "\"{}\" and \"{}\" are two names of one key, with different values", key, other);
    config[key] = config.at(other);
  }
  for (const auto& [key, value] : defaults.keys.items()) {
    verify(!config.contains(key) || !config.at(key).is_null() || value.is_null() || may_be_null(key.c_str()),
           ErrorKind::checkpoint, "\"{}\" is null, which is no value of it; leave it out if {} is meant", key,
           value.dump());
  }
  return config;
}

/// Reads the keys that export adds for import.
void read_own(const json& own, HuggingFaceModel& imported) {
  imported.model.sequence_length = integer_at(own, "sequence_length", 1, imported.model.max_position_embeddings);
  if (own.contains("decoder_sequence_length")) {
    imported.model.decoder_sequence_length =
        integer_at(own, "decoder_sequence_length", 1, imported.model.max_position_embeddings);
  }
  imported.model.vocab_multiple = integer_at(own, "vocab_multiple", 1, 1 << 20);
  if (own.contains("tie_embeddings")) imported.model.tie_embeddings = HuggingFaceKeys(own, own).flag("tie_embeddings");
  if (!own.contains("tokenizer")) return;
  Vocabulary vocabulary;
  vocabulary.tokenizer = text_at(own, "tokenizer", 64);
  vocabulary.size = static_cast<std::uint64_t>(integer_at(own, "vocab_size", 1, kMostOfAnySize));
  const std::string hash = text_at(own, "tokenizer_hash", 16);
  const char* end = hash.data() + hash.size();
  verify(std::from_chars(hash.data(), end, vocabulary.hash, 16).ptr == end, ErrorKind::checkpoint,
         "\"tokenizer_hash\" is no hexadecimal number");
  imported.vocabulary = vocabulary;
}

/// Models that end in the head of a task lack that of tokens.
void refuse_heads_of_tasks(const json& config, std::string_view imported) {
  const auto classes = config.find("architectures");
  if (classes == config.end() || !classes->is_array()) return;
  for (const json& name : *classes) {
    if (!name.is_string()) continue;
    const auto& text = name.get_ref<const std::string&>();
    for (const char* task : {"ForSequenceClassification", "ForMultipleChoice", "ForTokenClassification",
                             "ForQuestionAnswering", "ForNextSentencePrediction"}) {
      verify(!text.ends_with(task), ErrorKind::checkpoint,
             "\"architectures\" is {}, a model with the head of a task, which is not imported; what is imported is {}",
             printable(text.substr(0, 100)), imported);
    }
  }
}

void require_layers(std::int64_t layers, std::int64_t tensors) {
  verify(layers <= tensors, ErrorKind::checkpoint, "{} layers, and the files have {} tensors", layers, tensors);
}

}  // namespace

HuggingFaceModel parse_hugging_face_config(const json& config, std::int64_t tensors) {
  verify(config.is_object(), ErrorKind::checkpoint, "it is no object");
  const std::string type = config.contains("model_type") ? text_at(config, "model_type", 100) : "";
  verify(
      type != "umt5", ErrorKind::checkpoint,
      "\"model_type\" is \"umt5\", which has a table of distances in every layer; here, as in T5 and mT5, an encoder "
      "or decoder has one");
  const std::vector<HuggingFaceFormat> formats = hugging_face_formats();
  const auto known =
      std::find_if(formats.begin(), formats.end(), [&](HuggingFaceFormat format) { return type == name_of(format); });
  verify(known != formats.end(), ErrorKind::checkpoint, "\"model_type\" is \"{}\"; what can be imported is {}", type,
         names_of_formats());
  const HuggingFaceFamily& family = family_of(*known);
  refuse_heads_of_tasks(config, family.architecture);
  const json named = with_usual_names(config, family.defaults);
  const HuggingFaceKeys keys(named, family.defaults.keys);
  refuse_quantized(keys);
  refuse_changed_models(keys);
  HuggingFaceModel imported;
  imported.format = *known;
  imported.vocab_rows = keys.size("vocab_size");
  ModelConfig& model = imported.model;
  model = family.form;
  model.vocab_size = imported.vocab_rows;
  read_sizes(keys, family, model);
  require_layers(model.layers, tensors);  // before anything goes over them
  family.read(keys, model);
  require_layers(model.layers + model.decoder_layers, tensors);
  const std::int64_t layers_with_experts = model.expert_layers();
  verify(3 * model.moe.experts * layers_with_experts <= tensors, ErrorKind::checkpoint,
         "{} experts in {} layers, of three tensors each, and the files have {} tensors", model.moe.experts,
         layers_with_experts, tensors);
  model.sequence_length = model.max_position_embeddings;
  if (keys.has(kOwnConfigKey)) read_own(keys.object(kOwnConfigKey), imported);
  return imported;
}

Config config_of(const HuggingFaceModel& imported) try {
  Config config;
  config.model = imported.model;
  config.train.steps = config.train.global_batch_size = 1;
  config.learning_rate.decay = "constant";
  config.data.train = "imported";
  resolve(config, 1, nullptr);
  parse_config_text(print_config(config), "as a configuration of ours");  // checks the values of single keys
  return config;
} catch (const Error& error) {  // whichever rule it is, a stranger's file breaks it
  if (error.kind() != ErrorKind::configuration) throw;
  fail(ErrorKind::checkpoint, "{}", error.what());
}

}  // namespace megatron

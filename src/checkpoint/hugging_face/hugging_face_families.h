// The families of Hugging Face models that we can read and write, one row each: what of our model a family fixes, how
// its config.json names the rest, and how its tensors are named and laid out.
//
// A new family is a row in hugging_face_families.cpp, if our model's keys can express it. Knows names; reads no files.
#pragma once

#include <string>
#include <vector>

#include "checkpoint/hugging_face/hugging_face_keys.h"
#include "checkpoint/hugging_face/hugging_face_model.h"
#include "config/schema/config.h"

namespace megatron {

/// A key of our model in which members of a family differ.
struct FreeKey {
  const char* key;
  std::vector<std::string> values = {};  ///< as input files write them; empty: any
};

/// The ends of names of tensors that follow from the rotation's base.
inline const std::vector<const char*> kRotaryFrequencies = {".rotary_emb.inv_freq"};

/// Names in config.json, with those of most families as defaults. Null: the family has no such key, and its form or
/// another size says it.
struct HuggingFaceSizes {
  const char *hidden = "hidden_size", *layers = "num_hidden_layers", *heads = "num_attention_heads";
  const char* groups = nullptr;           ///< heads of keys and values; null here or in a file: as many as heads
  const char* head_size = nullptr;        ///< null here or in a file: hidden / heads
  const char* ffn = "intermediate_size";  ///< null here or in a file: 4 · hidden
  const char* positions = "max_position_embeddings";
  const char* epsilon = nullptr;                     ///< null: always that of `form`
  const char* activation = "hidden_act";             ///< null: always that of `form`
  const char* initialization = "initializer_range";  ///< null: theirs is no one deviation
  std::vector<const char*> hidden_dropout = {};      ///< the first is read; empty: there is none
  const char* attention_dropout = "attention_dropout";
};

/// How query, key and value lie in their tensors.
enum class HuggingFaceQkv {
  apart,
  stacked,  ///< one tensor: all of query, of key, of value
  by_head   ///< one tensor: query, key and value of the first head, of the second, ...
};

/// Names of tensors without ".weight" and ".bias", those of a layer after `layer` and its number; null: the family has
/// none.
struct HuggingFaceNames {
  const char* prefix = nullptr;  ///< missing from the tensors of a model that was saved without its head
  const char *word = nullptr, *position = nullptr, *embedding_norm = nullptr;
  const char* layer = nullptr;
  const char *attention_norm = nullptr, *mlp_norm = nullptr;
  const char *query = nullptr, *key = nullptr, *value = nullptr;  ///< or
  const char* query_key_value = nullptr;
  const char *output = nullptr, *gate = nullptr, *up = nullptr, *down = nullptr;
  /// Layers with experts: the router, the name in front of an expert's number, and an expert's matrices after it.
  const char *router = nullptr, *expert = nullptr;
  const char *expert_gate = nullptr, *expert_up = nullptr, *expert_down = nullptr;
  /// The name in front of the same matrices of the shared experts, and the linear layer of their gate.
  const char *shared_expert = nullptr, *shared_gate = nullptr;
  const char *query_norm = nullptr, *key_norm = nullptr;
  const char *final_norm = nullptr, *head = nullptr;
};

/// The values of keys that a config.json lacks: the defaults of the family's class in transformers 4.57 and 5, by a
/// test that holds both against these tables. An export writes all of them.
struct HuggingFaceDefaults {
  nlohmann::json keys;
  std::vector<const char*> may_be_null = {};  ///< also those whose default is null
  /// A key, and another name for it.
  std::vector<std::pair<const char*, const char*>> aliases = {};
};
HuggingFaceDefaults hugging_face_defaults(const std::string& family);

struct HuggingFaceFamily;

/// Maps our records to their tensors, for a model whose layers are a decoder's.
std::vector<HuggingFaceTensor> decoder_tensors(const ModelConfig& model, const HuggingFaceFamily& family,
                                               std::int64_t vocab_rows);

/// The same of BERT, with its heads for pretraining.
std::vector<HuggingFaceTensor> bert_tensors(const ModelConfig& model, const HuggingFaceFamily& family,
                                            std::int64_t vocab_rows);

/// The same of T5, an encoder and a decoder.
std::vector<HuggingFaceTensor> t5_tensors(const ModelConfig& model, const HuggingFaceFamily& family,
                                          std::int64_t vocab_rows);

struct HuggingFaceFamily {
  const char *name, *architecture;  ///< "model_type", and the class of the model with its head
  ModelConfig form;                 ///< common to all members
  std::vector<FreeKey> free;
  HuggingFaceSizes sizes;
  HuggingFaceDefaults defaults;
  HuggingFaceNames names;
  /// As hugging_face_tensors() says; model.family of `form` decides which records there are.
  std::vector<HuggingFaceTensor> (*tensors)(const ModelConfig& model, const HuggingFaceFamily& family,
                                            std::int64_t vocab_rows) = decoder_tensors;
  HuggingFaceQkv qkv = HuggingFaceQkv::apart;
  bool transposed = false;          ///< a layer's matrices are [in, out]
  float norm_shift = 0;             ///< their norms' weights plus this are ours
  std::int64_t position_shift = 0;  ///< rows in front of the position table that no position has
  /// Tensors that follow from the configuration: of a layer's the ends of their names, of others the whole.
  std::vector<const char*> derived = {};
  /// Other names under which files store a tensor, next to its usual name or in place of it, and that name.
  std::vector<std::pair<const char*, const char*>> copies = {};
  bool files_untie_head = false;  ///< a head in the files other than the word table makes the model an untied one
  /// A head is scaled if it is tied, for readers who do not know the family's key for it. An export then has a tied
  /// head that is not scaled as a copy of the word table, of an untied model.
  bool tied_head_is_scaled = false;
  bool begins_texts = false;  ///< where its tokenizer's files do not say: <s> or <bos> begins every text
  /// Read and write the rest of config.json, which the other members do not say. The first throws Error(checkpoint)
  /// naming a key that says something our model cannot do.
  void (*read)(const HuggingFaceKeys& keys, ModelConfig& model);
  void (*write)(const ModelConfig& model, nlohmann::json& config);
};

/// For rows: a form with something else.
template <class Change>
ModelConfig form_with(const ModelConfig& of, const Change& change) {
  ModelConfig form = of;
  change(form);
  return form;
}

const std::vector<HuggingFaceFamily>& hugging_face_families();
/// Rows of it that are in a file of their own.
HuggingFaceFamily hugging_face_llama();
HuggingFaceFamily hugging_face_mistral();
HuggingFaceFamily hugging_face_qwen2();
HuggingFaceFamily hugging_face_qwen3();
HuggingFaceFamily hugging_face_gemma();
HuggingFaceFamily hugging_face_megatron_bert();
HuggingFaceFamily hugging_face_bert();
HuggingFaceFamily hugging_face_t5();
HuggingFaceFamily hugging_face_mt5();
HuggingFaceFamily hugging_face_mixtral();
HuggingFaceFamily hugging_face_qwen3_moe();
HuggingFaceFamily hugging_face_qwen2_moe();
inline const HuggingFaceFamily& family_of(HuggingFaceFormat format) {
  return hugging_face_families()[static_cast<std::size_t>(format)];
}
/// Whether an export has the word table a second time, as the head.
inline bool exports_head_copy(const ModelConfig& model, const HuggingFaceFamily& family) {
  return family.tied_head_is_scaled && model.tie_embeddings && !model.scale_head;
}

/// Activations, with a gate or without, that they have a name for, as input files write them.
std::vector<std::string> hugging_face_activations(bool gated);
/// Whether these are names of the same activation: they have several for some.
bool same_hugging_face_activation(std::string_view a, std::string_view b);

/// rope_theta and rope_scaling of older files, rope_parameters with both of newer ones; where both are given the former
/// scaling counts, as in transformers. A key that its versions read differently is refused. `base` is the family's key
/// for the base, `fraction` the one for the part of each head that is rotated; null: all of it is, and a key for a part
/// has no effect, and refuses a scaling with it.
void read_rotation(const HuggingFaceKeys& keys, ModelConfig& model, const char* base = "rope_theta",
                   const char* fraction = nullptr);
void write_rotation(const ModelConfig& model, nlohmann::json& config);
/// Its scaling, as both generations of transformers read it; null: none.
nlohmann::json hugging_face_scaling(const ModelConfig& model);

}  // namespace megatron

// The families of Hugging Face models that we can read and write, one row each: what of our model a family fixes, how
// its config.json names the rest, and how its tensors are named and laid out.
//
// A new family is a row in hugging_face_families.cpp, if our model's keys can express it. Knows names; reads no files.
#pragma once

#include <string>
#include <vector>

#include "config/config.h"
#include "interop/hugging_face_keys.h"
#include "interop/hugging_face_model.h"

namespace megatron {

/// A key of our model in which members of a family differ.
struct FreeKey {
  const char* key;
  std::vector<std::string> values = {};  ///< as input files write them; empty: any
};

/// Names in config.json; null: the family has no such key, and its form or another size says it.
struct HuggingFaceSizes {
  const char *hidden = nullptr, *layers = nullptr, *heads = nullptr;
  const char* groups = nullptr;          ///< of keys and values; null: as many as heads
  std::int64_t groups_if_absent = 0;     ///< 0: as many as heads, which a null value always means
  const char* head_size = nullptr;       ///< null: hidden / heads
  std::int64_t head_size_if_absent = 0;  ///< 0: hidden / heads
  const char* ffn = nullptr;             ///< null: 4 · hidden
  bool ffn_may_be_absent = false;        ///< and is 4 · hidden then
  const char* positions = nullptr;
  std::int64_t positions_if_absent = 0;  ///< 0: the key is required
  const char* epsilon = nullptr;         ///< null: always that of `form`
  const char* activation = nullptr;      ///< null: always that of `form`
  const char* initialization = "initializer_range";
  std::vector<const char*> hidden_dropout = {};  ///< the first is read; empty: there is none
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
  const char* prefix = nullptr;  ///< which the tensors of a model that was saved without its head lack
  const char *word = nullptr, *position = nullptr, *embedding_norm = nullptr;
  const char* layer = nullptr;
  const char *attention_norm = nullptr, *mlp_norm = nullptr;
  const char *query = nullptr, *key = nullptr, *value = nullptr;  ///< or
  const char* query_key_value = nullptr;
  const char *output = nullptr, *gate = nullptr, *up = nullptr, *down = nullptr;
  const char *query_norm = nullptr, *key_norm = nullptr;
  const char *final_norm = nullptr, *head = nullptr;
};

struct HuggingFaceFamily;

/// Which of their tensors our records are, of a model whose layers are a decoder's.
std::vector<HuggingFaceTensor> decoder_tensors(const ModelConfig& model, const HuggingFaceFamily& family,
                                               std::int64_t vocab_rows);

/// The same of BERT, with its heads for pretraining.
std::vector<HuggingFaceTensor> bert_tensors(const ModelConfig& model, const HuggingFaceFamily& family,
                                            std::int64_t vocab_rows);

struct HuggingFaceFamily {
  const char *name, *architecture;  ///< "model_type", and the class of the model with its head
  ModelConfig form;                 ///< what all members have in common, and of the rest what an absent key means
  std::vector<FreeKey> free;
  HuggingFaceSizes sizes;
  std::vector<std::pair<const char*, const char*>> aliases = {};  ///< a key, and another that takes its place if given
  HuggingFaceNames names;
  /// As hugging_face_tensors() says; model.family of `form` decides which records there are.
  std::vector<HuggingFaceTensor> (*tensors)(const ModelConfig& model, const HuggingFaceFamily& family,
                                            std::int64_t vocab_rows) = decoder_tensors;
  HuggingFaceQkv qkv = HuggingFaceQkv::apart;
  bool transposed = false;          ///< a layer's matrices are [in, out]
  bool gelu_is_tanh = false;        ///< its "gelu" means the tanh form
  float norm_shift = 0;             ///< their norms' weights plus this are ours
  std::int64_t position_shift = 0;  ///< rows in front of the position table that no position has
  /// Tensors that follow from the configuration: of a layer's the ends of their names, of others the whole.
  std::vector<const char*> derived = {};
  /// What the other members do not say: reads and writes the rest of config.json. The first throws Error(checkpoint)
  /// naming a key that says something our model cannot do.
  void (*read)(const HuggingFaceKeys& keys, ModelConfig& model);
  void (*write)(const ModelConfig& model, nlohmann::json& config);
};

const std::vector<HuggingFaceFamily>& hugging_face_families();
/// Rows of it that are in a file of their own.
HuggingFaceFamily hugging_face_megatron_bert();
HuggingFaceFamily hugging_face_bert();
inline const HuggingFaceFamily& family_of(HuggingFaceFormat format) {
  return hugging_face_families()[static_cast<std::size_t>(format)];
}

/// rope_theta and rope_scaling of older files, rope_parameters with both of newer ones; where both are given the former
/// scaling counts, as in transformers. A part of each head is rotated in families that know `fraction_if_absent`; in
/// others (0) the key for it has no effect, and refuses a scaling with it.
void read_rotation(const HuggingFaceKeys& keys, ModelConfig& model, double fraction_if_absent);
/// Its scaling, as both generations of transformers read it; null: none.
nlohmann::json hugging_face_scaling(const ModelConfig& model);

}  // namespace megatron

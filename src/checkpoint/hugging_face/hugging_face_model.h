// How Hugging Face writes the models that we train: which of its tensors our records are, and its config.json.
//
// Families differ in names, in whether matrices are [in, out], in how query, key and value share a tensor, and in what
// they fix of a model: hugging_face_families.h has a row for each. Rotations are half-split in all of them, as here.
// Knows names and numbers of sizes; reads no files.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "backend/tensor/tensor.h"
#include "config/schema/config.h"
#include "data/shards/token_shard.h"

namespace megatron {

/// One of their tensors: rows of our records, and then transposed where they transpose. Rows that no record has are
/// zero, and so is a tensor without records.
struct HuggingFaceTensor {
  struct Record {
    std::string name;
    Shape shape;                ///< the rows that are exchanged: of vocabulary tables not all that we have
    Shape global_shape;         ///< as we store it
    std::int64_t first = 0;     ///< row of the tensor (column, if transposed) that is its first
    std::int64_t together = 0;  ///< the interval in rows after which the tensor has others; 0: never. Not if transposed
    std::int64_t spacing = 0;   ///< then: from the first of these rows to the first of the next
  };
  std::string name;
  std::vector<std::int64_t> shape;  ///< as they store it
  bool transposed = false;
  std::vector<Record> records;
  float shift = 0;  ///< their numbers plus this are ours
};

/// The families, in the order of hugging_face_families().
enum class HuggingFaceFormat {
  gpt2,
  llama,
  mistral,
  qwen2,
  qwen3,
  gemma,
  opt,
  gpt_neox,
  bloom,
  phi,
  megatron_bert,
  bert,
  t5,
  mt5,
  mixtral,
  qwen3_moe,
  qwen2_moe
};
std::vector<HuggingFaceFormat> hugging_face_formats();
const char* name_of(HuggingFaceFormat format);
/// Their names as a list in words: "gpt2, llama, ... or phi".
std::string names_of_formats();

/// The first format that a model can be exported to; Error(configuration) naming what each lacks.
HuggingFaceFormat format_of(const ModelConfig& model);
/// Error(configuration) naming each key of the model that the format has no place for.
void require_format(const ModelConfig& model, HuggingFaceFormat format);

/// All tensors of a model in one of the formats, with `vocab_rows` rows of vocabulary tables.
std::vector<HuggingFaceTensor> hugging_face_tensors(const ModelConfig& model, HuggingFaceFormat format,
                                                    std::int64_t vocab_rows);

/// Whether a tensor of theirs is a buffer that follows from the configuration.
bool is_derived(const std::string& name, HuggingFaceFormat format);

/// Settings that config.json of this format has no place for and a model can do without: a line for people each.
std::vector<std::string> lost_in_format(const ModelConfig& model, HuggingFaceFormat format);

/// config.json.
nlohmann::json hugging_face_config(const ModelConfig& model, HuggingFaceFormat format, const char* dtype);

inline constexpr const char* kOwnConfigKey = "megatron_train";  ///< key of config.json for what only we know of a model

struct HuggingFaceModel {
  HuggingFaceFormat format = HuggingFaceFormat::gpt2;
  ModelConfig model;            ///< not resolved; sequence_length is all positions unless our own key says less
  std::int64_t vocab_rows = 0;  ///< rows of their vocabulary tables
  std::optional<Vocabulary> vocabulary;  ///< that our own key names
};
/// The reverse, of a stranger's file, whose layers are bounded by the number of tensors. Throws Error(checkpoint)
/// naming the key that is missing, malformed, or says something that our model cannot do.
HuggingFaceModel parse_hugging_face_config(const nlohmann::json& config, std::int64_t tensors);

/// Resolved for one rank; batches and lengths are any, because none belong to a model. Error(checkpoint) if it breaks
/// a rule of our configurations.
Config config_of(const HuggingFaceModel& imported);

}  // namespace megatron

// How Hugging Face writes the models that we train: which of its tensors our records are, and its config.json.
//
// GPT-2's matrices are [in, out] there and [out, in] here, and its query, key and value are one tensor; Llama's are as
// ours, and so is its rotation (half-split). Knows names and numbers of sizes; reads no files.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "config/config.h"
#include "data/token_shard.h"
#include "tensor/tensor.h"

namespace megatron {

/// One of their tensors: our records below each other by rows, and then transposed where they transpose.
struct ForeignTensor {
  struct Record {
    std::string name;
    Shape shape;             ///< the rows that are exchanged: of vocabulary tables not all that we have
    Shape global_shape;      ///< as we store it
    std::int64_t first = 0;  ///< row of the tensor (column, if transposed) that is its first
  };
  std::string name;
  std::vector<std::int64_t> shape;  ///< as they store it
  bool transposed = false;
  std::vector<Record> records;
};

enum class ForeignFormat { gpt2, llama };
const char* name_of(ForeignFormat format);

/// The format that a model can be exported to; Error(configuration) naming what neither has.
ForeignFormat format_of(const ModelConfig& model);
/// Error(configuration) naming each key of the model that the format has no place for.
void require_format(const ModelConfig& model, ForeignFormat format);

/// Of a model in one of the formats, with so many rows of vocabulary tables on their side: all of its tensors.
std::vector<ForeignTensor> foreign_tensors(const ModelConfig& model, ForeignFormat format, std::int64_t vocab_rows);

/// Whether a tensor of theirs is a buffer that follows from the configuration, or a copy that a tied model has no use
/// for.
bool is_derived(const std::string& name, ForeignFormat format);

/// config.json.
nlohmann::json foreign_config(const ModelConfig& model, ForeignFormat format, const char* dtype);

inline constexpr const char* kOwnConfigKey = "megatron_train";  ///< of config.json: what only we know of a model

struct ForeignModel {
  ForeignFormat format = ForeignFormat::gpt2;
  ModelConfig model;            ///< not resolved; sequence_length is all positions unless our own key says less
  std::int64_t vocab_rows = 0;  ///< of their vocabulary tables
  std::optional<Vocabulary> vocabulary;  ///< that our own key names
};
/// The reverse, of a stranger's file beside files of so many tensors, which bound its layers. Throws Error(checkpoint)
/// naming the key that is missing, malformed, or says something that our model cannot do.
ForeignModel parse_foreign_config(const nlohmann::json& config, std::int64_t tensors);

/// Resolved for one rank; batches and lengths are any, because none belong to a model. Error(checkpoint) if it breaks
/// a rule of our configurations.
Config config_of(const ForeignModel& foreign);

}  // namespace megatron

// Checkpoints as Hugging Face models and back, as safetensors: the families of hugging_face_families.h.
//
// Streams tensor by tensor: memory is that of the largest one in fp32, or twice that where their matrices are
// transposed (GPT-2), and in an export that of one more, which is written while the next one is read; but for the
// comparison at the end, which runs the whole model. A target appears whole or not at all.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "checkpoint/hugging_face/hugging_face_model.h"
#include "checkpoint/safetensors/safetensors.h"
#include "checkpoint/store/checkpoint.h"
#include "data/shards/token_shard.h"
#include "inference/decoding/logit_comparison.h"

namespace megatron {

struct ConversionReport {
  int files = 0;
  std::int64_t bytes = 0, tensors = 0;
  bool has_tokenizer = false;               ///< its files were there and were copied, or say what the vocabulary is
  std::string tokenizer_file;               ///< that an import's tokenizer was made from; empty: not of such a folder
  std::int64_t zero_rows = 0;               ///< rows for tokens that this program added to the vocabulary of an import
  std::int64_t left_out = 0;                ///< added tokens of an import that the model has no rows for
  bool chat_template = false;               ///< an import has one, which is kept for exports
  std::string unusable_chat_template;       ///< why an import's is not kept; empty if it is, or if there is none
  std::string unsupported_tokenizer;        ///< why an import could not use the folder's first file; empty if it could
  std::vector<std::string> lost;            ///< losses of an export: lost_in_format(), and a tokenizer's rules
  std::optional<LogitComparison> compared;  ///< unless it was not asked for
};

struct ExportOptions {
  std::optional<HuggingFaceFormat> format = {};  ///< default: what the model is
  SafetensorsType type = SafetensorsType::f32;
  std::int64_t max_shard_bytes = 5'000'000'000;
  bool compare = true;
};

/// Writes the folder `target`: safetensors, config.json, and, if the run has its tokenizer, that one's files with a
/// tokenizer.json and a tokenizer_config.json for AutoTokenizer. Every tensor of
/// the checkpoint goes somewhere, or this is Error(checkpoint) naming one that does not. A model with the head of a
/// task is one of the family's classes with such a head, and has no logits to compare. If fp32 does not give the same
/// logits bit by bit (Gemma, whose norms are shifted: to 1e-5), Error(internal).
ConversionReport export_checkpoint(const CheckpointReader& source, const std::string& target, Communicator& world,
                                   const ExportOptions& options);

struct ImportOptions {
  std::string data;  ///< shards whose vocabulary the model has; default: the tokenizer's files in source
  std::string vocab_file = {}, merge_file = {};  ///< the tokenizer's files, instead of those in source
  std::int64_t vocab_size = 0;                   ///< default: the tokenizer's, or all rows of the tables
  std::int64_t sequence_length = 0;              ///< default: all positions
  bool compare = true;
};

/// Makes a checkpoint of the model in the folder `source`: weights alone, at step 0, in one file, for
/// checkpoint.initialize_from, the tokenizer's files if the folder has them, and kModelFragment. Every tensor there is
/// used, or this is Error(checkpoint) naming one that is not. [BOS], [EOS] and sentinels that the vocabulary ends with,
/// and the model does not know (bert-base-uncased and its vocab.txt), get rows of zeros.
ConversionReport import_checkpoint(const std::string& source, const std::string& target, Communicator& world,
                                   const ImportOptions& options);

}  // namespace megatron

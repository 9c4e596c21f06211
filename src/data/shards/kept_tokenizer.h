// The tokenizer's files in a run directory, tokenizer/vocab.json and tokenizer/merges.txt: training needs ids only, but
// who makes text from the run needs the vocabulary. Tokenizers without files (byte) have nothing there.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/system/log.h"
#include "data/shards/token_dataset.h"
#include "data/tokenizer/tokenizer.h"

namespace megatron {

/// Copies the files that lie next to the shards of one of the sets, which are of one tokenizer, into the run directory,
/// unless they are there already; a warning if there are none. For one rank. ErrorKind::data if they are of another
/// vocabulary than the shards were made with.
void keep_tokenizer(const std::string& run_directory, const std::vector<std::unique_ptr<TokenDataset>>& sets, Log& log);

/// The same with the files of a tokenizer that is there.
void keep_tokenizer(const std::string& run_directory, const Tokenizer& tokenizer);

/// The tokenizer that these sets, which are of one, were made with; nullptr if it needs files that are not with the
/// shards, or is not known.
std::unique_ptr<Tokenizer> tokenizer_of_data(const std::vector<std::unique_ptr<TokenDataset>>& sets);

/// The name in a checkpoint whose tokenizer an import could not find out.
inline constexpr const char* kUnknownTokenizer = "unknown";

/// The tokenizer of a checkpoint. Its files: those that are named, or those that an import kept in the checkpoint's
/// folder, or those kept in the run directory that this folder (RUN/checkpoints/step_00000100) is in.
/// ErrorKind::configuration that says what to do for kUnknownTokenizer; ErrorKind::data
/// if they are not there, or what is wrong in files that are named; ErrorKind::checkpoint if their vocabulary has
/// another hash, or what was kept is damaged.
std::unique_ptr<Tokenizer> tokenizer_of_checkpoint(const std::string& checkpoint_path, const std::string& name,
                                                   std::uint64_t hash, const std::string& vocab_file,
                                                   const std::string& merge_file);

}  // namespace megatron

// Shared by the programs that run a checkpoint's model: the options for its source, layout, precision and vocabulary,
// with the same words and checks in each; and files that rank 0 reads and writes.
#pragma once

#include <boost/program_options.hpp>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "checkpoint/store/checkpoint.h"
#include "config/schema/config.h"
#include "data/tokenizer/tokenizer.h"
#include "distributed/comm/communicator.h"

namespace megatron {

struct ModelOptions {
  std::string source, vocab_file, merge_file, device, precision;
  std::int64_t tensor = 1, pipeline = 1, threads = 1;

  /// The device and threads, with the defaults for the rest.
  RunConfig run() const;
};

/// Adds "source", which is given without an option's name; `source` is its name in the help text.
void add_source_option(boost::program_options::options_description& described, ModelOptions& options,
                       const char* source);
/// Adds the others. The ranks that --tensor and --pipeline leave share what `shared` says.
void add_model_options(boost::program_options::options_description& described, ModelOptions& options,
                       const std::string& shared);
/// Adds --begin-token, "auto" by default; `places` says where the token then is.
void add_begin_token_option(boost::program_options::options_description& described, std::string& chosen,
                            const std::string& places);
/// Error(configuration) for a value that is not possible.
void check_begin_token(const std::string& chosen);
/// The token that is to stand in front of every text, as --begin-token says: "yes": the imported model's, or the
/// vocabulary's, or the one that ends documents; "auto": the imported model's where its tokenizer puts it; "no": none.
/// Error(checkpoint) if the vocabulary lacks it.
std::optional<std::int32_t> chosen_begin_token(const std::string& chosen, const CheckpointReader& checkpoint,
                                               const Tokenizer& tokenizer);

/// Error(configuration) for a value that is not possible.
void check_model_options(const ModelOptions& options);

/// The tokenizer that the model was trained with. Not collective. Errors as tokenizer_of_checkpoint(), and
/// Error(checkpoint) if the checkpoint names none.
std::unique_ptr<Tokenizer> tokenizer_of(const CheckpointReader& checkpoint, const ModelOptions& options);

/// The contents of a regular file that rank 0 reads: other ranks' machines need not have it. Collective.
std::string read_on_first_rank(const std::string& path, Communicator& world);

}  // namespace megatron

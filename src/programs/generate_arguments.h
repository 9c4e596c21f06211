// The command line of megatron_generate.
#pragma once

#include <string>
#include <vector>

#include "base/system/durable_file.h"
#include "inference/generation/text_options.h"
#include "programs/model_options.h"

namespace megatron {

struct GenerateArguments {
  ModelOptions model;
  TextOptions text;
  SearchOptions search;
  std::vector<std::string> prompts;       ///< from --prompt and --unconditional
  std::string prompts_file, begin_token;  ///< begin_token: "auto", "yes" or "no"
  OutputFile output{"--output", ""}, logits{"--logits", ""};
  std::int64_t batch = 0;  ///< 0: as the prompts suggest
  int planned_ranks = 0;   ///< for --dry-run; 0: as many as there are
  bool unconditional = false, no_begin_token = false, special_tokens = false, interactive = false, serve = false,
       dry_run = false;
  bool chat = false;
  std::string system;  ///< for --chat; empty: none
  bool version = false, help = false;

  /// Whether a token stands in front of every prompt.
  bool begins() const { return !no_begin_token && begin_token != "no"; }
  bool converses() const { return interactive || serve || chat; }
  bool scores() const { return !converses() && text.sampling.max_new_tokens == 0; }
};

/// Error(configuration) for what cannot be.
GenerateArguments parse_generate_arguments(int argc, char** argv);
/// The text of --help.
std::string generate_help();

}  // namespace megatron

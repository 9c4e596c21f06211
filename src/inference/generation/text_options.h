// Options of a generated text: how its tokens are chosen and where it ends. The command line and the requests of
// --serve-stdio fill the same struct and are checked by the same function.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "config/schema/config.h"
#include "inference/decoding/sampling.h"

namespace megatron {

struct TextOptions {
  SamplingOptions sampling;
  std::int64_t samples = 1;        ///< texts per prompt
  std::int64_t likeliest = 0;      ///< how many tokens' log-probabilities are given in each place
  std::vector<std::string> stops;  ///< a text ends in front of the first of these
  std::vector<std::int32_t> ends;  ///< tokens that end a text; none: the tokenizer's end of documents
  bool truncate = false;           ///< a prompt that is too long loses its beginning
};

/// How all texts of a program are searched for.
struct SearchOptions {
  std::int64_t beams = 0;  ///< 0: none, tokens are sampled
  double length_penalty = 1;
  std::int64_t speculate = 0;  ///< tokens that are guessed from the text so far and checked together
};

/// Tokens that a prompt may have. Error(configuration) if there is no room for the new tokens of beams, which
/// cannot leave the beginning of their context out. New tokens take nothing of an encoder's context.
std::int64_t room_for_prompt(const TextOptions& options, const SearchOptions& search, const ModelConfig& model);

/// How an option is written: "--top-p", or "\"top_p\"" in JSON.
enum class Spelling { command_line, json };
std::string spelled(Spelling spelling, std::string name);

/// Error(configuration) that names the first option whose value is not possible.
void check_text_options(const TextOptions& options, Spelling spelling);

}  // namespace megatron

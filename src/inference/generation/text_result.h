// A finished text, and the JSON that says what it is: a line of --output and an answer of --serve-stdio.
#pragma once

#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <vector>

#include "inference/decoding/generate.h"
#include "inference/generation/text_options.h"

namespace megatron {

/// [token, value]
template <class Json>
void to_json(Json& json, const TokenLogProbability& likely) {
  json = {likely.token, likely.value};
}
template <class Json>
void from_json(const Json& json, TokenLogProbability& likely) {
  json.at(0).get_to(likely.token);
  json.at(1).get_to(likely.value);
}

struct TextResult {
  std::int64_t prompt = 0, sample = 0;  ///< numbers from 0
  std::string text;                     ///< up to a stop text
  Generated made;
};

/// Members of a result that are wanted besides text, tokens and finished.
struct ResultMembers {
  bool log_probabilities = true;
  bool likeliest = false;
  bool score = false;  ///< for beams
};

ResultMembers members_of(const TextOptions& options, const SearchOptions& search);

/// {sample, text, tokens, finished, logprobs, top_logprobs, score}, as far as wanted. Of bytes that are no UTF-8, since
/// tokens may end within a character, each becomes U+FFFD in the text.
nlohmann::ordered_json result_json(const TextResult& result, const ResultMembers& members);
/// {tokens, logprobs, top_logprobs} of a prompt that was scored: the first one of `tokens` is left out if it is the
/// begin token, and else has null, since nothing is in front of it.
nlohmann::ordered_json scores_json(const Generated& scored, std::span<const std::int32_t> tokens, bool begin_token,
                                   const ResultMembers& members);
/// JSON on one line, with its end. Bytes that are no UTF-8 become U+FFFD.
std::string json_line(const nlohmann::ordered_json& json);

/// A job's result, by the job's number.
struct NumberedResult {
  std::size_t job = 0;
  Generated made;
};
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(Generated, tokens, ending, log_probabilities, likeliest, score)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(NumberedResult, job, made)

}  // namespace megatron

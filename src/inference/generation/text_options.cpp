#include "inference/generation/text_options.h"

#include <algorithm>
#include <cmath>

#include "base/core/error.h"
#include "base/text/utf8.h"

namespace megatron {

std::int64_t room_for_prompt(const TextOptions& options, const SearchOptions& search, const ModelConfig& model) {
  const std::int64_t context = model.sequence_length;
  if (search.beams == 0 || model.has_decoder()) return context;
  // The last new token is not read.
  const std::int64_t read = std::max<std::int64_t>(options.sampling.max_new_tokens - 1, 0);
  verify(read < context, ErrorKind::configuration,
         "beams of {} new tokens do not fit into the model's context of {}; ask for fewer", read + 1, context);
  return context - read;
}

std::string spelled(Spelling spelling, std::string name) {
  if (spelling == Spelling::command_line) return "--" + name;
  std::replace(name.begin(), name.end(), '-', '_');
  return "\"" + name + "\"";
}

void check_text_options(const TextOptions& options, Spelling spelling) {
  const auto require = [&](bool condition, const char* name, const char* range) {
    verify(condition, ErrorKind::configuration, "{}: {}{}", spelled(spelling, name), range,
           spelling == Spelling::command_line ? "; see --help" : "");
  };
  const SamplingOptions& sampling = options.sampling;
  constexpr std::int64_t kMost = std::int64_t{1} << 30;
  require(sampling.max_new_tokens >= 0 && sampling.max_new_tokens <= kMost, "max-new-tokens", "0 to 1073741824");
  require(sampling.temperature > 0 && std::isfinite(sampling.temperature), "temperature",
          "more than 0 (greedy is the limit)");
  require(sampling.top_k >= 0, "top-k", "0 or more");
  require(sampling.top_p >= 0 && sampling.top_p <= 1, "top-p", "between 0 and 1");
  require(sampling.top_p_decay > 0 && sampling.top_p_decay <= 1, "top-p-decay", "more than 0, at most 1");
  require(sampling.top_p_bound >= 0 && sampling.top_p_bound <= sampling.top_p, "top-p-bound", "between 0 and top-p");
  require(sampling.repetition_penalty > 0 && std::isfinite(sampling.repetition_penalty), "repetition-penalty",
          "more than 0");
  require(options.samples >= 1 && options.samples <= 1 << 16, "samples", "1 to 65536");
  require(options.likeliest >= 0 && options.likeliest <= 1 << 20, "logprobs", "0 to 1048576");
  for (const std::string& text : options.stops) {
    require(!text.empty(), "stop", "at least one character");
    require(first_invalid_utf8(text) == text.size(), "stop", "valid UTF-8");
  }
}

}  // namespace megatron

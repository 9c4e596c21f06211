#include "inference/generation/text_result.h"

#include "inference/generation/text_pieces.h"

namespace megatron {

namespace {

using nlohmann::ordered_json;

std::string valid_utf8(const std::string& bytes) {
  Utf8Pieces pieces;
  std::string text = pieces.add(bytes);
  return text + pieces.rest();
}

}  // namespace

ResultMembers members_of(const TextOptions& options, const SearchOptions& search) {
  return {.log_probabilities = search.beams == 0, .likeliest = options.likeliest > 0, .score = search.beams > 0};
}

ordered_json result_json(const TextResult& result, const ResultMembers& members) {
  const Generated& made = result.made;
  ordered_json line = {{"sample", result.sample},
                       {"text", valid_utf8(result.text)},
                       {"tokens", made.tokens},
                       {"finished", made.ending == Ending::end_of_document || made.ending == Ending::stop_text}};
  if (members.score) line["score"] = made.score;
  if (members.log_probabilities) line["logprobs"] = made.log_probabilities;
  if (members.likeliest) line["top_logprobs"] = made.likeliest;
  return line;
}

ordered_json scores_json(const Generated& scored, std::span<const std::int32_t> tokens, bool begin_token,
                         const ResultMembers& members) {
  ordered_json line = {{"tokens", tokens.subspan(begin_token ? 1 : 0)}, {"logprobs", scored.log_probabilities}};
  if (members.likeliest) line["top_logprobs"] = scored.likeliest;
  if (!begin_token) {
    for (const char* name : {"logprobs", "top_logprobs"}) {
      if (const auto list = line.find(name); list != line.end()) list->insert(list->begin(), nullptr);
    }
  }
  return line;
}

std::string json_line(const ordered_json& json) {
  return json.dump(-1, ' ', false, ordered_json::error_handler_t::replace) + "\n";
}

}  // namespace megatron

#include "generation/text_result.h"

#include "generation/text_pieces.h"

namespace megatron {

namespace {

using nlohmann::json;
using nlohmann::ordered_json;

std::string valid_utf8(const std::string& bytes) {
  Utf8Pieces pieces;
  std::string text = pieces.add(bytes);
  return text + pieces.rest();
}

ordered_json likeliest_json(const std::vector<std::vector<TokenLogProbability>>& places) {
  ordered_json all = ordered_json::array();
  for (const auto& place : places) {
    ordered_json tokens = ordered_json::array();
    for (const TokenLogProbability& likely : place) {
      tokens.push_back(ordered_json::array({likely.token, likely.value}));
    }
    all.push_back(std::move(tokens));
  }
  return all;
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
  if (members.likeliest) line["top_logprobs"] = likeliest_json(made.likeliest);
  return line;
}

ordered_json scores_json(const Generated& scored, std::span<const std::int32_t> tokens, bool begin_token,
                         const ResultMembers& members) {
  ordered_json line = {{"tokens", tokens.subspan(begin_token ? 1 : 0)}, {"logprobs", scored.log_probabilities}};
  if (members.likeliest) line["top_logprobs"] = likeliest_json(scored.likeliest);
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

std::string pack_results(const std::vector<NumberedResult>& results) {
  json all = json::array();
  for (const auto& [job, made] : results) {
    json likeliest = json::array();
    for (const auto& place : made.likeliest) {
      json tokens = json::array();
      for (const TokenLogProbability& likely : place) tokens.push_back(json::array({likely.token, likely.value}));
      likeliest.push_back(std::move(tokens));
    }
    all.push_back(json::array(
        {job, made.tokens, static_cast<int>(made.ending), made.log_probabilities, std::move(likeliest), made.score}));
  }
  const std::vector<std::uint8_t> bytes = json::to_cbor(all);
  return {bytes.begin(), bytes.end()};
}

std::vector<NumberedResult> unpack_results(const std::string& packed) {
  std::vector<NumberedResult> results;
  for (const json& one : json::from_cbor(packed.begin(), packed.end())) {
    NumberedResult result;
    result.job = one.at(0).get<std::size_t>();
    result.made.tokens = one.at(1).get<std::vector<std::int32_t>>();
    result.made.ending = static_cast<Ending>(one.at(2).get<int>());
    result.made.log_probabilities = one.at(3).get<std::vector<double>>();
    for (const json& place : one.at(4)) {
      auto& tokens = result.made.likeliest.emplace_back();
      for (const json& likely : place) {
        tokens.push_back({likely.at(0).get<std::int32_t>(), likely.at(1).get<double>()});
      }
    }
    result.made.score = one.at(5).get<double>();
    results.push_back(std::move(result));
  }
  return results;
}

}  // namespace megatron

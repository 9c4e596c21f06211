#include "data/evaluation_tasks/result_text.h"

#include <fmt/format.h>

#include <algorithm>

namespace megatron {

namespace {

std::string spaced(std::string name) {
  std::replace(name.begin(), name.end(), '_', ' ');
  return name;
}

}  // namespace

std::vector<std::pair<std::string, double>> result_measures(const EvaluationResult& result) {
  std::vector<std::pair<std::string, double>> measures = {{"loss", result.loss}, {"perplexity", result.perplexity()}};
  const auto add = [&](const char* name, const std::optional<double>& value) {
    if (value) measures.emplace_back(name, *value);
  };
  add("adjusted_perplexity", result.adjusted_perplexity);
  add("token_ratio", result.token_ratio);
  add("bits_per_byte", result.bits_per_byte);
  add("bits_per_word", result.bits_per_word);
  add("accuracy", result.accuracy);
  add("accuracy_normalized", result.accuracy_normalized);
  return measures;
}

nlohmann::ordered_json result_json(const EvaluationResult& result) {
  nlohmann::ordered_json json = {{"task", result.task}, {"examples", result.examples}, {"tokens", result.tokens}};
  for (const auto& [name, value] : result_measures(result)) json[name] = value;
  return json;
}

std::string result_line(const EvaluationResult& result) {
  std::string line;
  for (const auto& [name, value] : result_measures(result)) {
    line += fmt::format("{}{} {:.6g}", line.empty() ? "" : ", ", spaced(name), value);
  }
  if (result.shortened > 0) {
    line += fmt::format(", {} of {} contexts lost their beginning", result.shortened, result.examples);
  }
  return line;
}

std::string result_table(const nlohmann::ordered_json& json) {
  std::string table;
  for (const auto& [name, value] : json.items()) {
    std::string text = value.is_string()           ? value.get<std::string>()
                       : value.is_number_integer() ? fmt::format("{}", value.get<std::int64_t>())
                                                   : fmt::format("{:.6g}", value.get<double>());
    table += fmt::format("{:<20} {}\n", spaced(name), text);
  }
  return table;
}

}  // namespace megatron

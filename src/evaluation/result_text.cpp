#include "evaluation/result_text.h"

#include <fmt/format.h>

namespace megatron {

nlohmann::ordered_json result_json(const EvaluationResult& result) {
  nlohmann::ordered_json json = {{"task", result.task},
                                 {"examples", result.examples},
                                 {"tokens", result.tokens},
                                 {"loss", result.loss},
                                 {"perplexity", result.perplexity()}};
  const auto add = [&](const char* name, const std::optional<double>& value) {
    if (value) json[name] = *value;
  };
  add("adjusted_perplexity", result.adjusted_perplexity);
  add("token_ratio", result.token_ratio);
  add("accuracy", result.accuracy);
  add("accuracy_normalized", result.accuracy_normalized);
  return json;
}

std::string result_table(const EvaluationResult& result) {
  std::string table;
  const nlohmann::ordered_json json = result_json(result);
  for (const auto& [name, value] : json.items()) {
    std::string text = value.is_string()           ? value.get<std::string>()
                       : value.is_number_integer() ? fmt::format("{}", value.get<std::int64_t>())
                                                   : fmt::format("{:.6g}", value.get<double>());
    std::string title = name;
    for (char& c : title) c = c == '_' ? ' ' : c;
    table += fmt::format("{:<20} {}\n", title, text);
  }
  return table;
}

}  // namespace megatron

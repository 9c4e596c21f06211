#include "programs/label_result.h"

#include <fmt/format.h>

#include <algorithm>

namespace megatron {

namespace {

/// The class with the largest probability; the first of equal ones.
std::size_t told(const std::vector<double>& probabilities) {
  return static_cast<std::size_t>(std::max_element(probabilities.begin(), probabilities.end()) - probabilities.begin());
}

}  // namespace

nlohmann::ordered_json label_json(const std::string& task, const std::vector<std::string>& names, bool labelled,
                                  const LabelResult& result) {
  nlohmann::ordered_json json = {{"task", task}};
  if (labelled) {
    json.update(
        {{"examples", result.counts.all_examples()}, {"loss", result.loss}, {"accuracy", result.counts.accuracy()}});
  } else {
    json["examples"] = result.probabilities.size();
  }
  std::vector<std::int64_t> chosen = result.counts.chosen;
  for (const auto& row : result.probabilities) chosen[told(row)] += labelled ? 0 : 1;
  for (std::size_t i = 0; i < names.size(); ++i) {
    nlohmann::ordered_json label = {{"label", names[i]}};
    if (labelled) label.update({{"examples", result.counts.examples[i]}, {"right", result.counts.right[i]}});
    label["chosen"] = chosen[i];
    json["labels"].push_back(label);
  }
  return json;
}

std::string label_table(const nlohmann::ordered_json& json) {
  const bool labelled = json.contains("accuracy");
  std::string table = fmt::format("{:<20} {}\n{:<20} {}\n", "task", json["task"].get<std::string>(), "examples",
                                  json["examples"].get<std::int64_t>());
  if (labelled) {
    table += fmt::format("{:<20} {:.6g}\n{:<20} {:.6g}\n", "loss", json["loss"].get<double>(), "accuracy",
                         json["accuracy"].get<double>());
  }
  const std::vector<const char*> columns =
      labelled ? std::vector<const char*>{"examples", "right", "chosen"} : std::vector<const char*>{"chosen"};
  table += fmt::format("\n{:<20}", "label");
  for (const char* column : columns) table += fmt::format(" {:>10}", column);
  for (const auto& label : json["labels"]) {
    table += fmt::format("\n{:<20}", label["label"].get<std::string>());
    for (const char* column : columns) table += fmt::format(" {:>10}", label[column].get<std::int64_t>());
  }
  return table + "\n";
}

std::string prediction_lines(const std::string& task, const std::vector<std::string>& names,
                             const LabelResult& result) {
  std::string lines;
  for (std::size_t i = 0; i < result.probabilities.size(); ++i) {
    const std::vector<double>& row = result.probabilities[i];
    nlohmann::ordered_json line = {{"example", i}};
    if (task == "classification") {
      line["label"] = names[told(row)];
      for (std::size_t k = 0; k < names.size(); ++k) line["scores"][names[k]] = row[k];
    } else {
      line["answer"] = told(row);
      line["scores"] = row;
    }
    lines += line.dump() + "\n";
  }
  return lines;
}

}  // namespace megatron

// An evaluation's result for people and for programs.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "data/evaluation_tasks/task.h"

namespace megatron {

/// The measures that a result has of {loss, perplexity, adjusted_perplexity, token_ratio, bits_per_byte,
/// bits_per_word, accuracy, accuracy_normalized}, in this order.
std::vector<std::pair<std::string, double>> result_measures(const EvaluationResult& result);
/// {task, examples, tokens} and result_measures().
nlohmann::ordered_json result_json(const EvaluationResult& result);
/// The measures in one line: "loss 3.1, perplexity 22.2, accuracy 0.42".
std::string result_line(const EvaluationResult& result);
/// result_json(), to which more may have been added, as a table of two columns; whole lines.
std::string result_table(const nlohmann::ordered_json& json);

}  // namespace megatron

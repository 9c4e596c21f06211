// An evaluation's result for people and for programs.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "evaluation/task.h"

namespace megatron {

/// What applies of {task, examples, tokens, loss, perplexity, adjusted_perplexity, token_ratio, accuracy,
/// accuracy_normalized}.
nlohmann::ordered_json result_json(const EvaluationResult& result);
/// The same as a table of two columns; whole lines.
std::string result_table(const EvaluationResult& result);

}  // namespace megatron

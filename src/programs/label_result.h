// Results of a model that predicts labels or choices, as megatron_eval prints and writes them.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "inference/decoding/label_scorer.h"

namespace megatron {

/// As --output has it: examples, loss and accuracy, and for each label how many have it, were told right and to have
/// it. Without labels (LabelResult's probabilities alone) examples and how often each label was told.
nlohmann::ordered_json label_json(const std::string& task, const std::vector<std::string>& names, bool labelled,
                                  const LabelResult& result);
std::string label_table(const nlohmann::ordered_json& json);

/// As --predictions has it, a line of JSON for each example in the order of the files:
/// {"example": 0, "label": NAME, "scores": {NAME: PROBABILITY, ...}}, of questions {"example": 0, "answer": NUMBER,
/// "scores": [PROBABILITY, ...]}.
std::string prediction_lines(const std::string& task, const std::vector<std::string>& names, const LabelResult& result);

}  // namespace megatron

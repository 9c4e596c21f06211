// Facts that follow from the keys of [task]: labels and the outputs of a task's head. Pure functions of the table.
#pragma once

#include "config/schema/config.h"

namespace megatron {

/// "0", "1" and so on.
std::vector<std::string> numbered_labels(std::int64_t count);

/// Labels of "classification" in the order of the head's outputs: the format's own or those that are given. Else empty.
std::vector<std::string> labels_of(const TaskConfig& task);

/// Outputs of the head for each column of a batch: one for each label; of "multiple_choice" one. 0: there is no head.
std::int64_t task_outputs(const TaskConfig& task);

/// Sets what the model must know of its task.
void derive_head(Config& config);

}  // namespace megatron

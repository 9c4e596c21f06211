// Memory of a rank with and without each option, from the planner: one model, one layout, options alone and together.
// Nothing is allocated or timed, and no ranks are needed; that plans are what runs take is the tests' business.
#pragma once

#include <string>
#include <vector>

#include "train/replica.h"

namespace megatron {

struct MemoryCase {
  std::string option;
  MemoryPlan plan;  ///< the plan of the stage that takes the most
};

/// GPT-2 124M on tensor 2, pipeline 2, data 2: no option, each alone, and those of Hugging Face Accelerate's guide
/// together.
std::vector<MemoryCase> memory_cases();

/// A table for people, and a line of JSON a case for scripts.
std::string describe(const std::vector<MemoryCase>& cases);
std::string to_json(const MemoryCase& benchmark);

}  // namespace megatron

// One step of a run's trace.json (src/training/loop/step_trace.h) as passes over time, for the report's picture.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "training/pipeline/simulate.h"

namespace megatron {

struct TracedStep {
  std::int64_t step = 0;
  double seconds = 0;
  /// By stage, of its first rank: the passes, and from when to when they computed, in seconds from the step's
  /// beginning.
  std::vector<std::vector<Action>> passes;
  std::vector<std::vector<Simulation::Span>> spans;
};

/// The last step in the file; nothing if there is no file. Errors: configuration with what is wrong, for a file that is
/// damaged, too large or without a whole step.
std::optional<TracedStep> read_traced_step(const std::string& path);

}  // namespace megatron

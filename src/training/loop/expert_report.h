// Reports on the use of a model's experts, for metrics.jsonl and for the end of a run.
#pragma once

#include <string>
#include <vector>

#include "distributed/comm/process_grid.h"
#include "monitoring/metrics/metrics.h"
#include "training/step/expert_use.h"

namespace megatron {

/// The use with the least gap of all ranks. Collective over the world.
ExpertUse with_agreed_gap(ExpertUse use, const ProcessGrid& grid);

/// `layers`: the names of the layers with experts.
ExpertMetrics expert_metrics(const ExpertUse& use, const std::vector<std::string>& layers);

/// The busiest and the idlest expert, what was dropped, and the router gap. Of at least one step.
std::string expert_table(const ExpertUse& use, const std::vector<std::string>& layers);

}  // namespace megatron

#include "planning/bench/comparisons.h"

#include <algorithm>

#include "planning/dry_run/plan_text.h"
#include "training/step/grid.h"

namespace megatron {

Report plan_memory_cases() {
  std::vector<Row> rows;
  double none = 0;  // total of the first
  for (const Case& each : memory_cases()) {
    const std::vector<MemoryPlan> stages = plan_stages(each.config, grid_shape(each.config));
    const MemoryPlan& plan = *std::max_element(
        stages.begin(), stages.end(), [](const MemoryPlan& a, const MemoryPlan& b) { return a.total() < b.total(); });
    const auto total = static_cast<double>(plan.total());
    if (rows.empty()) none = total;
    rows.push_back({each.name, plan.weights, plan.gradients, plan.optimizer, plan.activations, plan.communication,
                    plan.scratch, plan.kernels, plan.batch, plan.total(), total / none});
  }
  constexpr double mebibytes = 1.0 / (1 << 20);
  std::vector<ReportColumn> columns = {{"option", "option"}};
  for (const char* part :
       {"weights", "gradients", "optimizer", "activations", "communication", "scratch", "kernels", "batch"}) {
    columns.push_back({part, part, 1, mebibytes});
  }
  columns.push_back({"total", "total", 0, mebibytes});
  columns.push_back({"of none", "", 0, 100, " %"});
  return table("memory",
               "MiB of the fullest rank: GPT-2 124M, 4 x 1024 tokens per micro-batch, 8 of them, tensor 2, pipeline 2, "
               "data 2",
               columns, rows);
}

}  // namespace megatron

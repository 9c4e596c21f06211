#include "train/dry_run.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <optional>

#include "config/resolve.h"
#include "config/unsupported.h"
#include "pipeline/simulate.h"
#include "train/datasets.h"
#include "train/report.h"

namespace megatron {

namespace {

constexpr int kMostStagesDrawn = 8;

std::optional<DataFacts> facts_if_present(const Config& config) {
  try {
    return Datasets(config).facts();
  } catch (const Error&) {
    return {};  // planning needs no data; training will say what is wrong with it
  }
}

}  // namespace

std::string dry_run(Config config, int ranks) {
  const ParallelConfig& parallel = config.parallel;
  if (ranks == 0) {
    const std::int64_t data = std::max<std::int64_t>(1, parallel.data);
    ranks = static_cast<int>(parallel.tensor * parallel.context * parallel.pipeline * data);
  }
  std::vector<std::string_view> to_come;
  for (const Unsupported& feature : unsupported_features()) {
    if (feature.asked_for(config)) to_come.push_back(feature.key);
  }
  const std::optional<DataFacts> facts = config.data.train.empty() ? std::nullopt : facts_if_present(config);
  resolve(config, ranks, facts ? &*facts : nullptr);

  const GridShape shape = grid_shape(config);
  const std::vector<MemoryPlan> stages = plan_stages(config, shape);
  std::string text = describe_plan(config, stages) + "\n";
  auto out = std::back_inserter(text);
  for (std::size_t i = 0; i < stages.size(); ++i) {
    fmt::format_to(out, "parameters a rank on stage {}: {}\n", i, stages[i].parameters);
  }
  const bool plain_schedule = parallel.schedule == "1f1b" || parallel.schedule == "gpipe";
  if (shape.pipeline > 1 && shape.pipeline <= kMostStagesDrawn && plain_schedule) {
    const auto micro_batches = static_cast<int>(micro_batches_per_step(config));
    text += draw_schedules(make_schedules(parallel.schedule, shape.pipeline, std::min(micro_batches, 12)));
  }
  if (!facts) text += "data: not found here; steps and vocabulary are the input file's\n";
  if (to_come.empty()) {
    text += "this run can be trained as it is\n";
  } else {
    fmt::format_to(out, "not supported for training yet, planned only: {}\n", fmt::join(to_come, ", "));
  }
  return text;
}

}  // namespace megatron

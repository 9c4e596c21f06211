#include "training/loop/run_outputs.h"

#include "base/text/text.h"

namespace megatron {

RunOutputs::RunOutputs(const Config& config, Log& output)
    : metrics_path(config.run.directory + "/metrics.jsonl"),
      log(output),
      events(config.run.directory, output),
      metrics(metrics_path, output,
              [this](const nlohmann::json& line) {
                curves.add(line);
                events.add(line);
              }),
      progress(output, config.train.steps),
      plot(config.run.directory, config.run.directory, curves.plot, output) {}

void RunOutputs::continue_after(std::int64_t step, const std::vector<std::string>& evaluations_due) {
  const RemovedMetrics removed = truncate_metrics(
      metrics_path, step, evaluations_due, [this](const nlohmann::json& line, std::string_view) { curves.add(line); });
  if (removed.unreadable == 0) return;
  log.warning("{} of {} cannot be read and {} left out; the whole file as it was is {}",
              counted(removed.unreadable, "line"), metrics_path, removed.unreadable == 1 ? "is" : "are",
              removed.kept_as);
}

}  // namespace megatron

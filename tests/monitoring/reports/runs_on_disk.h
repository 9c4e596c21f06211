// Folders that look like those of runs, for tests of what is read from them.
#pragma once

#include <string>

#include "base/system/log.h"
#include "monitoring/metrics/metrics.h"
#include "monitoring/reports/history.h"
#include "support/temporary_folder.h"

namespace megatron::test {

inline constexpr const char* kConfig = R"([model]
layers = 2
hidden_size = 32
attention_heads = 4
sequence_length = 16

[parallel]
pipeline = 2
data = 1

[train]
steps = 40
micro_batch_size = 1
global_batch_size = 4

[learning_rate]
peak = 0.001

[data]
train = "data/<corpus>"
)";

inline std::string train_line(std::int64_t step, std::int64_t skipped = 0) {
  return metrics_line(TrainMetrics{.step = step,
                                   .loss = 2 + 3.0 / static_cast<double>(step),
                                   .losses = {{"language_model", 2 + 3.0 / static_cast<double>(step)}},
                                   .grad_norm = 0.5,
                                   .learning_rate = 1e-3,
                                   .samples = 4 * step,
                                   .tokens = 64 * step,
                                   .epoch = 0.5,
                                   .global_batch_size = 4,
                                   .step_seconds = 0.25,
                                   .tokens_per_second = 256,
                                   .skipped = skipped,
                                   .time = 1.7e9 + static_cast<double>(step)}) +
         "\n";
}

inline std::string evaluation_line(std::int64_t step, double loss) {
  return metrics_line(EvaluationMetrics{.split = "validation", .step = step, .loss = loss, .time = 1.7e9}) + "\n";
}

inline ProgramStart start_of(std::int64_t step, const std::string& config = kConfig) {
  return {.time = 1.7e9 + static_cast<double>(step),
          .version = "9.8.7",
          .step = step,
          .ranks = 2,
          .hosts = 1,
          .host = "node<1>",
          .device = "a CPU",
          .threads = 3,
          .config = config};
}

inline ProgramEnd end_of(std::int64_t step, const std::string& how) {
  return {.time = 1.7e9 + static_cast<double>(step) + 90,
          .step = step,
          .how = how,
          .seconds = {{"forward", {1, 2, 3}}, {"backward", {2, 4, 6}}},
          .bytes = {{"predicted", {1024, 1024, 2048}}, {"used", {1024, 1024, 1536}}, {"sent", {0, 0, 0}}}};
}

/// A run of 40 steps that was stopped after 20 and resumed with another rate.
inline void make_whole_run(const std::string& folder) {
  Log log(false);
  std::string metrics;
  for (int step = 1; step <= 40; ++step) {
    metrics += train_line(step, step == 7 ? 2 : 0);
    if (step % 20 == 0) metrics += evaluation_line(step, 5.0 - step / 20.0);
  }
  write_file(folder + "/metrics.jsonl", metrics);
  write_file(folder + "/config.toml", kConfig);
  write_file(folder + "/run.log",
             "2026-01-02 03:04:05  megatron_train 9.8.7\n2026-01-02 03:04:06  warning: a <script>alert(1)</script>\n"
             "2026-01-02 03:04:07  no warning: this line\n");
  write_file(folder + "/provenance.json",
             R"({"data/<corpus>": {"steps": [[{"step": "text", "read": 700, "kept": 634, "made_by": "9.8.7",
                 "removed": {"a": 1, "b": 0, "c": 50, "d": 8, "e": 7}}]], "provenance": {}}})");
  std::string before = kConfig;
  before.replace(before.find("0.001"), 5, "0.002");
  for (const std::string& line : {history_line(start_of(0, before)), history_line(end_of(20, "stopped on SIGTERM")),
                                  history_line(start_of(20)), history_line(end_of(40, "complete"))}) {
    add_to_history(folder, line, log);
  }
}

}  // namespace megatron::test

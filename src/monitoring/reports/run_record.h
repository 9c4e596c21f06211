// RunRecord: all that a run's folder tells of it, read for reports and for --watch. Nothing is written, and nothing but
// a folder without a run is an error: what is missing or damaged becomes a note for people.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "config/schema/config.h"
#include "monitoring/metrics/plot_data.h"
#include "monitoring/metrics/recent_mean.h"
#include "monitoring/reports/history.h"
#include "monitoring/reports/traced_step.h"

namespace megatron {

/// Results of the evaluations on one split, or of one task.
struct EvaluationSummary {
  std::string name;
  std::int64_t count = 0;
  double first_step = 0, last_step = 0, best_step = 0;
  double first_loss = 0, last_loss = 0, best_loss = 0;  ///< NaN where there is none
  double perplexity = 0, accuracy = 0;                  ///< the last evaluation's; NaN likewise
};

/// How a layer's choices fell on its experts in the last step that told.
struct ExpertLoad {
  std::string layer;
  std::vector<double> shares;  ///< by expert, at least one; together about 1
  std::size_t busiest() const {
    return static_cast<std::size_t>(std::max_element(shares.begin(), shares.end()) - shares.begin());
  }
};

/// Metrics as they are read, line by line.
struct RunCurves {
  PlotData plot;
  std::vector<EvaluationSummary> evaluations;
  /// Numbers of the last training line; NaN where it has none.
  double loss = 0, gradient_norm = 0, learning_rate = 0, epoch = 0, tokens = 0, samples = 0, tflops_per_rank = 0;
  double step_seconds = 0, tokens_per_second = 0, time = 0;
  RecentMean mean_step_seconds;
  std::vector<ExpertLoad> experts;  ///< from the last training line that has some, in the order of its layers
  double dropped = 0;               ///< the share of choices without room, there
  std::int64_t unreadable = 0;      ///< lines

  void add(const nlohmann::json& line);
};

struct RunRecord {
  std::string directory, name;  ///< the name: its last part
  RunCurves curves;
  std::string config_text;           ///< config.toml; empty if there is none
  std::optional<Config> config;      ///< unless this version cannot read it
  std::optional<TracedStep> traced;  ///< if there is a trace.json
  std::string provenance;            ///< provenance.json; empty if there is none
  std::vector<PastProgram> programs;
  std::vector<std::string> warnings;  ///< from run.log, the last 50
  std::int64_t warnings_before = 0;   ///< earlier ones
  std::vector<std::string> notes;     ///< on what is missing or damaged
  bool running = false;               ///< by run_is_locked(), where the caller asked that
};

/// Throws Error(configuration) unless `directory` is the folder of a run: it has metrics or a configuration.
void require_run(const std::string& directory);
/// Whether another process trains in `directory` now, as far as its lock tells: on some network file systems it does
/// not. Not for the process that holds the lock: looking at it would let it go.
bool run_is_locked(const std::string& directory);
/// Errors: configuration as above; filesystem, for what is there and cannot be read. `curves`: those of metrics.jsonl,
/// where the caller has them already, so that the file is not read.
RunRecord read_run(const std::string& directory, const RunCurves* curves = nullptr);
/// Configuration and programs alone: a bounded number of bytes, however long the run is.
RunRecord read_run_facts(const std::string& directory);

}  // namespace megatron

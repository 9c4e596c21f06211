// metrics.jsonl: the machine-readable record of a run, one JSON object per line.
//
// One rank writes, and never ends the run by it (base/system/record_file.h). Readers must expect a torn last line (a
// job may be killed at any time); visit_metrics and truncate_metrics do.
//
// Numbers are the shortest decimals that read back as the same double; what is not finite is null.
#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/system/log.h"
#include "base/system/record_file.h"

namespace megatron {

/// The experts in the last step of a training line.
struct ExpertMetrics {
  double dropped = 0;     ///< share of all choices that found no place
  double router_gap = 0;  ///< the least difference between the last chosen score of a token and the next one
  /// By layer, the share of its choices that each expert has; rounded, and left out where lines would become too long.
  std::vector<std::pair<std::string, std::vector<double>>> load;
};

/// {"kind":"train",...}: the steps since the line before, up to and with `step`. Fields are written in this order.
struct TrainMetrics {
  std::int64_t step = 0;                               ///< steps done, this one included: the first line's is 1
  double loss = 0;                                     ///< mean over these steps (interval.h)
  std::vector<std::pair<std::string, double>> losses;  ///< by name, every term of the loss
  double grad_norm = 0, learning_rate = 0;
  std::optional<double> parameter_norm = {};  ///< with run.parameter_norm
  std::int64_t samples = 0, tokens = 0;       ///< consumed by the run up to and with this step
  double epoch = 0;                           ///< samples / samples of an epoch
  std::int64_t global_batch_size = 0;
  double step_seconds = 0, tokens_per_second = 0;  ///< the whole job's tokens
  double model_tflops_per_rank = 0, hardware_tflops_per_rank = 0;
  double loss_scale = 1;
  std::int64_t skipped = 0;                   ///< steps skipped for a non-finite loss or gradient since the line before
  std::optional<ExpertMetrics> experts = {};  ///< for a model that has experts
  double time = 0;                            ///< seconds since 1970, UTC
};

/// {"kind":"eval",...}: an evaluation after `step` steps; where there is no accuracy, the perplexity is added by the
/// writer.
struct EvaluationMetrics {
  std::string split;  ///< "validation", "test", or one of its sets: "validation/wiki"
  std::int64_t step = 0;
  double loss = 0;
  /// By name, the loss' terms, the perplexity's first; a single one is the loss, and not written again.
  std::vector<std::pair<std::string, double>> losses = {};
  std::int64_t samples = 0, tokens = 0;  ///< that the run has trained on by then
  double time = 0;                       ///< seconds since 1970, UTC
  std::optional<double> accuracy = {};   ///< for a task with labels: the share of `examples` that was told right
  std::int64_t examples = 0;             ///< the evaluation's; each counts once
};

/// {"kind":"task",...}: an evaluation task after `step` steps.
struct TaskMetrics {
  std::string name, task;
  std::int64_t step = 0, examples = 0, targets = 0;
  std::vector<std::pair<std::string, double>> measures;  ///< loss, perplexity and what else the task has
  std::int64_t samples = 0, tokens = 0;                  ///< that the run has trained on by then
  double time = 0;                                       ///< seconds since 1970, UTC
};

/// e^loss, with the loss capped at 20 so that an untrained model's stays readable; of a loss that is not finite,
/// itself.
double perplexity(double loss);

/// The lines as written, without the line end.
std::string metrics_line(const TrainMetrics& metrics);
std::string metrics_line(const EvaluationMetrics& metrics);
std::string metrics_line(const TaskMetrics& metrics);

class MetricsWriter {
 public:
  /// Appends to `path`; opened at the first line. `also` gets every line too, as the object that it is. `log` hears the
  /// one warning and must outlive the writer.
  using Also = std::function<void(const nlohmann::json& line)>;
  MetricsWriter(std::string path, Log& log, Also also = nullptr);

  void write(const TrainMetrics& metrics) { append(metrics_line(metrics)); }
  void write(const EvaluationMetrics& metrics) { append(metrics_line(metrics)); }
  void write(const TaskMetrics& metrics) { append(metrics_line(metrics)); }

 private:
  void append(std::string line);

  RecordFile file_;
  Also also_;
};

/// Whether a line is a JSON object, nested no deeper than lines that are written, which then is in `object`. Deeper
/// ones would only cost the parser's stack.
bool parse_metrics_line(const std::string& line, nlohmann::json& object);

/// Calls `visit` with every whole JSON object of the file in order, and its text without the line end. Lines that are
/// torn, longer than BoundedLines takes, no objects or nested too deep are passed over. Returns how many were; 0 also
/// if there is no file. Of a longer file only the lines in its last `most_bytes` count.
using VisitLine = std::function<void(const nlohmann::json& object, std::string_view text)>;
std::int64_t visit_metrics(const std::string& path, const VisitLine& visit,
                           std::uint64_t most_bytes = std::numeric_limits<std::uint64_t>::max());

/// Prefix of a task's name in the list of evaluations that are due.
inline constexpr const char* kTaskDue = "task ";

/// The lines that truncate_metrics has removed.
struct RemovedMetrics {
  std::int64_t lines = 0;       ///< lines of later steps, of evaluations that are due, and a torn last one
  std::int64_t unreadable = 0;  ///< other lines that cannot be read
  std::string kept_as;          ///< the file as it was, where there were any of those
};

/// For resuming at a checkpoint of `last_step`: removes the lines of later steps, those of this step's evaluations that
/// are still due (splits, and tasks after kTaskDue), and lines that cannot be read; calls `visit` with the others. The
/// file is replaced by rename, so that it is whole whatever happens; memory does not depend on its length. What cannot
/// be read, a torn last line apart, is not lost: PATH.damaged is the whole file as it was. Nothing happens without a
/// file. Errors: filesystem, if the shorter file cannot be written.
RemovedMetrics truncate_metrics(const std::string& path, std::int64_t last_step,
                                const std::vector<std::string>& evaluations_due = {}, const VisitLine& visit = nullptr);

}  // namespace megatron

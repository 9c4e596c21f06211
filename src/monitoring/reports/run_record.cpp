#include "monitoring/reports/run_record.h"

#include <cmath>
#include <deque>
#include <filesystem>

#include "base/core/error.h"
#include "base/system/bounded_lines.h"
#include "base/system/lock_holder.h"
#include "base/text/byte_text.h"
#include "checkpoint/store/files.h"
#include "config/parse/parse.h"
#include "monitoring/metrics/json_fields.h"
#include "monitoring/metrics/metrics.h"

namespace megatron {

namespace {

constexpr std::size_t kMostWarnings = 50, kMostKeptEvaluations = 32, kLongestWarning = 500;
constexpr std::int64_t kLongestConfig = 1 << 20, kLongestProvenance = std::int64_t{256} << 20;
constexpr std::uint64_t kMostLog = std::uint64_t{64} << 20;  // bytes: hundreds of thousands of lines

bool is_file(const std::string& path) {
  return file_type(path) != FileType::absent;
}

void add_evaluation(std::vector<EvaluationSummary>& all, const std::string& name, const nlohmann::json& line) {
  const double step = number_or_nan(line, "step"), loss = number_or_nan(line, "loss");
  EvaluationSummary* found = nullptr;
  for (EvaluationSummary& one : all) {
    if (one.name == name) found = &one;
  }
  if (found == nullptr) {
    if (all.size() == kMostKeptEvaluations) return;
    found = &all.emplace_back(
        EvaluationSummary{.name = name, .first_step = step, .best_step = step, .first_loss = loss, .best_loss = loss});
  }
  ++found->count;
  if (loss < found->best_loss || std::isnan(found->best_loss)) {
    found->best_loss = loss;
    found->best_step = step;
  }
  found->last_step = step;
  found->last_loss = loss;
  found->perplexity = number_or_nan(line, "perplexity");
  found->accuracy = number_or_nan(line, "accuracy");
}

// Warnings are what a person looks for first; a log line is "2026-11-23 14:49:27  warning: ...".
void read_warnings(RunRecord& run) {
  const std::string path = run.directory + "/run.log";
  if (!is_file(path)) {
    run.notes.emplace_back("There is no run.log: warnings are not known.");
    return;
  }
  BoundedLines lines(path);
  if (lines.go_to_last(kMostLog)) {
    run.notes.push_back(fmt::format("Warnings are those of the last {} of run.log.", format_bytes(kMostLog)));
  }
  std::deque<std::string> kept;
  std::string line;
  for (bool too_long = false; lines.next(line, too_long);) {
    const auto at = line.find("  warning: ");
    if (at != 19) continue;
    if (kept.size() == kMostWarnings) {
      kept.pop_front();
      ++run.warnings_before;
    }
    kept.push_back(line.substr(0, 19) + "  " + line.substr(at + 11, kLongestWarning));
  }
  run.warnings.assign(kept.begin(), kept.end());
}

void read_config(RunRecord& run) {
  const std::string path = run.directory + "/config.toml";
  if (!is_file(path)) {
    run.notes.emplace_back("There is no config.toml: the configuration is not known.");
    return;
  }
  try {
    run.config_text = read_text_file(path, kLongestConfig);
    run.config = parse_config_text(run.config_text, path);
  } catch (const Error& error) {
    const std::string what = error.what();
    run.notes.push_back("This version cannot read config.toml, which another one may have written: " +
                        what.substr(0, what.find('\n')));
  }
}

void read_provenance(RunRecord& run) {
  const std::string path = run.directory + "/provenance.json";
  if (!is_file(path)) return;
  try {
    run.provenance = read_text_file(path, kLongestProvenance);
  } catch (const Error& error) {
    run.notes.push_back(fmt::format("Where the data comes from is not told: {}", error.what()));
  }
}

void read_trace(RunRecord& run) {
  try {
    run.traced = read_traced_step(run.directory + "/trace.json");
  } catch (const Error& error) {
    run.notes.push_back(fmt::format("The traced step is not drawn: {}", error.what()));
  }
}

}  // namespace

namespace {

/// As metrics.h has them; members of another form are passed over.
std::vector<ExpertLoad> expert_loads(const nlohmann::json& experts) {
  std::vector<ExpertLoad> loads;
  const auto load = experts.find("load");
  if (load == experts.end() || !load->is_object()) return loads;
  for (const auto& [layer, shares] : load->items()) {
    ExpertLoad one{.layer = layer, .shares = {}};
    for (const nlohmann::json& share : shares) {
      if (share.is_number()) one.shares.push_back(share.get<double>());
    }
    if (!one.shares.empty()) loads.push_back(std::move(one));
  }
  std::stable_sort(loads.begin(), loads.end(), [](const ExpertLoad& a, const ExpertLoad& b) {
    return std::pair(a.layer.size(), std::string_view(a.layer)) < std::pair(b.layer.size(), std::string_view(b.layer));
  });
  return loads;
}

}  // namespace

void RunCurves::add(const nlohmann::json& line) {
  plot.add(line);
  const std::string kind = text_or(line, "kind", "");
  if (kind == "eval") add_evaluation(evaluations, text_or(line, "split", "evaluation"), line);
  if (kind == "task") add_evaluation(evaluations, text_or(line, "name", "task"), line);
  if (kind != "train") return;
  loss = number_or_nan(line, "loss");
  gradient_norm = number_or_nan(line, "grad_norm");
  learning_rate = number_or_nan(line, "learning_rate");
  epoch = number_or_nan(line, "epoch");
  tokens = number_or_nan(line, "tokens");
  samples = number_or_nan(line, "samples");
  tflops_per_rank = number_or_nan(line, "model_tflops_per_rank");
  tokens_per_second = number_or_nan(line, "tokens_per_second");
  time = number_or_nan(line, "time");
  step_seconds = number_or_nan(line, "step_seconds");
  if (step_seconds > 0) mean_step_seconds.add(step_seconds);
  const auto told = line.find("experts");
  if (told == line.end() || !told->is_object()) return;
  experts = expert_loads(*told);
  dropped = number_or_nan(*told, "dropped");
}

void require_run(const std::string& directory) {
  const FileType type = file_type(directory);
  std::error_code unknown;
  const bool folder = type == FileType::directory || std::filesystem::is_directory(directory, unknown);
  verify(type != FileType::absent, ErrorKind::configuration, "{}: no such run: there is no such folder", directory);
  verify(folder && (is_file(directory + "/metrics.jsonl") || is_file(directory + "/config.toml")),
         ErrorKind::configuration,
         "{}: no such run: it has neither metrics.jsonl nor config.toml; give the run.directory of a run", directory);
}

bool run_is_locked(const std::string& directory) {
  return !lock_holder(directory + "/lock").empty() || !lock_holder(directory + "/.lock").empty();
}

RunRecord read_run_facts(const std::string& directory) {
  require_run(directory);
  RunRecord run;
  run.directory = directory;
  run.name = std::filesystem::path(directory + "/.").lexically_normal().parent_path().filename().string();
  if (run.name.empty() || run.name == "." || run.name == "..") run.name = directory;
  read_config(run);
  std::int64_t lost = 0;
  run.programs = read_history(directory, lost);
  if (lost > 0) run.notes.push_back(fmt::format("Lines of history.jsonl that cannot be read: {}.", lost));
  if (run.programs.empty()) {
    run.notes.emplace_back(
        "There is no history.jsonl, as older versions write none: the machine, memory and where the time went are not "
        "known here; run.log may tell.");
  }
  return run;
}

RunRecord read_run(const std::string& directory, const RunCurves* curves) {
  RunRecord run = read_run_facts(directory);
  read_warnings(run);
  read_trace(run);
  read_provenance(run);
  const std::string metrics = directory + "/metrics.jsonl";
  if (!is_file(metrics)) run.notes.emplace_back("There is no metrics.jsonl: no step has been recorded.");
  if (curves != nullptr) {
    run.curves = *curves;
  } else {
    run.curves.unreadable = visit_metrics(metrics, [&](const auto& line, std::string_view) { run.curves.add(line); });
  }
  if (run.curves.unreadable > 0) {
    run.notes.push_back(fmt::format("Lines of metrics.jsonl that cannot be read: {}.", run.curves.unreadable));
  }
  if (is_file(metrics) && run.curves.plot.train_lines == 0) {
    run.notes.emplace_back("metrics.jsonl has no training line: the run has not done a step.");
  }
  return run;
}

}  // namespace megatron

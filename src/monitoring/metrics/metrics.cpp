#include "monitoring/metrics/metrics.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>

#include "base/core/error.h"
#include "base/system/bounded_lines.h"
#include "base/system/durable_file.h"
#include "monitoring/metrics/json_fields.h"

namespace megatron {

namespace {

constexpr std::size_t kMostLoads = 65536;  // on one line, each at most 10 bytes
constexpr int kDeepest = 8;                // lines that are written have 4

std::string number(double value) {
  return std::isfinite(value) ? fmt::format("{}", value) : "null";
}

std::string members(const std::vector<std::pair<std::string, double>>& values) {
  std::string text;
  for (const auto& [name, value] : values) {
    text += fmt::format("{}{}:{}", text.empty() ? "" : ",", in_quotes(name), number(value));
  }
  return text;
}

/// One part in 10^6 of all choices is enough to plot.
std::string shares(const std::vector<double>& values) {
  std::string text;
  for (const double value : values) {
    text += fmt::format("{}{}", text.empty() ? "" : ",", number(std::round(value * 1e6) / 1e6));
  }
  return text;
}

std::string experts_member(const std::optional<ExpertMetrics>& experts) {
  if (!experts) return "";
  std::size_t numbers = 0;
  std::string load;
  for (const auto& [layer, values] : experts->load) {
    numbers += values.size();
    if (numbers > kMostLoads) break;
    load += fmt::format("{}{}:[{}]", load.empty() ? "" : ",", in_quotes(layer), shares(values));
  }
  return fmt::format(R"("experts":{{"dropped":{},"router_gap":{}{}}},)", number(experts->dropped),
                     number(experts->router_gap), numbers > kMostLoads ? "" : fmt::format(R"(,"load":{{{}}})", load));
}

/// Whether a line is the beginning of one that this program writes.
bool begins_a_line(std::string_view text) {
  constexpr std::string_view kBegin = R"({"kind":")";
  return text.starts_with(kBegin) || kBegin.starts_with(text);
}

/// Whether the brackets outside of strings are nested no deeper than any line that is written. Deeper ones would only
/// cost the parser's stack.
bool is_flat(std::string_view line) {
  int depth = 0;
  bool inside = false;
  for (std::size_t i = 0; i < line.size() && depth <= kDeepest; ++i) {
    if (inside && line[i] == '\\') {
      ++i;
    } else if (line[i] == '"') {
      inside = !inside;
    } else if (!inside) {
      depth += line[i] == '{' || line[i] == '[' ? 1 : line[i] == '}' || line[i] == ']' ? -1 : 0;
    }
  }
  return depth <= kDeepest;
}

/// visit_metrics(). `torn`: whether the last line was still being written when the program ended.
std::int64_t visit_lines(BoundedLines& lines, const VisitLine& visit, bool& torn) {
  torn = false;
  std::int64_t passed_over = 0;
  std::string line;
  nlohmann::json object;
  for (bool too_long = false; lines.next(line, too_long);) {
    if (!too_long && parse_metrics_line(line, object)) {
      visit(object, line);
    } else {
      ++passed_over;
      torn = !lines.ended() && begins_a_line(line);
    }
  }
  return passed_over;
}

}  // namespace

double perplexity(double loss) {
  return std::isfinite(loss) ? std::exp(std::min(loss, 20.0)) : loss;
}

std::string metrics_line(const TrainMetrics& metrics) {
  const std::string losses = members(metrics.losses);
  const std::string parameter_norm =
      metrics.parameter_norm ? fmt::format(R"("parameter_norm":{},)", number(*metrics.parameter_norm)) : "";
  return fmt::format(
      R"({{"kind":"train","step":{},"loss":{},"losses":{{{}}},"grad_norm":{},{}"learning_rate":{},"samples":{},)"
      R"("tokens":{},"epoch":{},"global_batch_size":{},"step_seconds":{},"tokens_per_second":{},)"
      R"("model_tflops_per_rank":{},"hardware_tflops_per_rank":{},"loss_scale":{},"skipped":{},{}"time":{}}})",
      metrics.step, number(metrics.loss), losses, number(metrics.grad_norm), parameter_norm,
      number(metrics.learning_rate), metrics.samples, metrics.tokens, number(metrics.epoch), metrics.global_batch_size,
      number(metrics.step_seconds), number(metrics.tokens_per_second), number(metrics.model_tflops_per_rank),
      number(metrics.hardware_tflops_per_rank), number(metrics.loss_scale), metrics.skipped,
      experts_member(metrics.experts), number(metrics.time));
}

std::string metrics_line(const EvaluationMetrics& metrics) {
  const bool several = metrics.losses.size() > 1;
  const std::string losses = several ? fmt::format(R"("losses":{{{}}},)", members(metrics.losses)) : "";
  const double of_perplexity = several ? metrics.losses.front().second : metrics.loss;
  const std::string measure =
      metrics.accuracy ? fmt::format(R"("accuracy":{},"examples":{})", number(*metrics.accuracy), metrics.examples)
                       : fmt::format(R"("perplexity":{})", number(perplexity(of_perplexity)));
  return fmt::format(R"({{"kind":"eval","split":{},"step":{},"loss":{},{}{},"samples":{},"tokens":{},"time":{}}})",
                     in_quotes(metrics.split), metrics.step, number(metrics.loss), losses, measure, metrics.samples,
                     metrics.tokens, number(metrics.time));
}

std::string metrics_line(const TaskMetrics& metrics) {
  return fmt::format(
      R"({{"kind":"task","name":{},"task":{},"step":{},"examples":{},"targets":{},{},"samples":{},"tokens":{},"time":{}}})",
      in_quotes(metrics.name), in_quotes(metrics.task), metrics.step, metrics.examples, metrics.targets,
      members(metrics.measures), metrics.samples, metrics.tokens, number(metrics.time));
}

MetricsWriter::MetricsWriter(std::string path, Log& log, Also also)
    : file_(std::move(path), log, "training continues, lines of the metrics are lost"), also_(std::move(also)) {}

void MetricsWriter::append(std::string line) {
  line += '\n';
  file_.append(line);
  line.pop_back();
  if (!also_) return;
  if (const auto object = nlohmann::json::parse(line, nullptr, false); object.is_object()) also_(object);
}

namespace {

// Whether an evaluation is the one of this name, or of one of its sets.
bool belongs_to(std::string_view evaluated, const std::string& due) {
  if (evaluated == due) return true;
  return !due.starts_with(kTaskDue) && evaluated.starts_with(due + '/');
}

}  // namespace

bool parse_metrics_line(const std::string& line, nlohmann::json& object) {
  if (!is_flat(line)) return false;
  object = nlohmann::json::parse(line, nullptr, false);
  return object.is_object();
}

std::int64_t visit_metrics(const std::string& path, const VisitLine& visit, std::uint64_t most_bytes) {
  if (::access(path.c_str(), F_OK) != 0 && errno == ENOENT) return 0;
  BoundedLines lines(path);
  lines.go_to_last(most_bytes);
  bool torn = false;
  return visit_lines(lines, visit, torn);
}

RemovedMetrics truncate_metrics(const std::string& path, std::int64_t last_step,
                                const std::vector<std::string>& evaluations_due, const VisitLine& visit) {
  RemovedMetrics removed;
  if (::access(path.c_str(), F_OK) != 0 && errno == ENOENT) return removed;
  const std::string partial = path + ".partial";
  BoundedLines lines(path);  // a file that cannot be read is told before anything is written
  remove_quietly(partial);   // a link, which would be followed
  std::ofstream kept(partial, std::ios::binary | std::ios::trunc);
  bool torn = false;
  const auto keep = [&](const nlohmann::json& object, std::string_view text) {
    const auto step = object.find("step"), split = object.find("split"), name = object.find("name");
    const bool has_step = step != object.end() && step->is_number_integer();
    const bool later = has_step && step->get<std::int64_t>() > last_step;
    std::string evaluated;
    if (split != object.end() && split->is_string()) evaluated = split->get<std::string>();
    if (name != object.end() && name->is_string()) evaluated = kTaskDue + name->get<std::string>();
    const bool due = has_step && *step == last_step &&
                     std::any_of(evaluations_due.begin(), evaluations_due.end(),
                                 [&](const std::string& wanted) { return belongs_to(evaluated, wanted); });
    if (later || due) {
      ++removed.lines;
    } else {
      kept << text << '\n';
      if (visit) visit(object, text);
    }
  };
  removed.unreadable = visit_lines(lines, keep, torn) - (torn ? 1 : 0);
  removed.lines += torn ? 1 : 0;
  kept.close();
  if (!kept) {
    remove_quietly(partial);
    fail(ErrorKind::filesystem, "cannot write {}: {}; free some space, or move {} away", partial, std::strerror(errno),
         path);
  }
  sync_path(partial);
  if (removed.unreadable > 0) removed.kept_as = keep_as(path, ".damaged");
  rename_durably(partial, path);
  return removed;
}

}  // namespace megatron

// What --watch shows of a run: watch_lines() of watch.h.
#include <algorithm>
#include <cmath>

#include "monitor/progress.h"
#include "monitor/run_watch.h"
#include "plots/chart.h"
#include "plots/terminal_curve.h"
#include "report/report.h"
#include "report/watch.h"
#include "text/characters.h"
#include "text/text.h"

namespace megatron {

namespace {

constexpr int kMostCurveRows = 20, kMostEvaluations = 4, kBar = 30;

std::string value(const char* format, double number, const std::string& unit) {
  return std::isfinite(number) ? fmt::format(fmt::runtime(format), number) + unit : "";
}

// "  [======>       ]  42 %  step 420 of 1000", where the number of steps is known.
std::string bar(double step, double steps) {
  if (!(steps > 0)) return "";
  const double share = std::clamp(step / steps, 0.0, 1.0);
  const auto full = static_cast<std::size_t>(share * kBar);
  return fmt::format("[{}{}] {:.0f} %", std::string(full, '='), std::string(kBar - full, ' '), std::floor(100 * share));
}

std::string joined(const std::vector<std::string>& parts) {
  std::string text;
  for (const std::string& part : parts) {
    if (!part.empty()) text += (text.empty() ? "" : "   ") + part;
  }
  return text;
}

std::string speed(const RunRecord& run, double steps, double now) {
  const RunCurves& curves = run.curves;
  std::vector<std::string> parts;
  if (std::isfinite(curves.tokens_per_second))
    parts.push_back(short_label(std::round(curves.tokens_per_second)) + " tokens/s");
  parts.push_back(value("{:.4g}", curves.step_seconds, " s per step"));
  const double since = now - curves.time;
  if (run.running && steps > curves.plot.last_step && curves.mean_step_seconds > 0) {
    const double all = (steps - curves.plot.last_step) * curves.mean_step_seconds;
    parts.push_back(format_duration(std::max(0.0, all - std::max(0.0, since))) + " to go");
  }
  if (run.running && since > 2) parts.push_back("last line " + about(since) + " ago");
  return joined(parts);
}

std::string evaluation(const EvaluationSummary& one) {
  const std::string accuracy = std::isfinite(one.accuracy) ? fmt::format("accuracy {:.2f} %", 100 * one.accuracy) : "";
  const std::string best = one.count > 1 && one.best_step != one.last_step
                               ? fmt::format("best {:.4f} after {:.0f}", one.best_loss, one.best_step)
                               : "";
  return joined({fmt::format("{} after step {:.0f}:", one.name, one.last_step), value("loss {:.4f}", one.last_loss, ""),
                 value("perplexity {:.2f}", one.perplexity, ""), accuracy, best});
}

}  // namespace

std::vector<std::string> watch_lines(const RunRecord& run, double now, const WatchView& view) {
  const RunCurves& curves = run.curves;
  const double steps = run.config ? static_cast<double>(run.config->train.steps) : 0;
  std::vector<std::string> head = {joined({run.directory, bar(curves.plot.last_step, steps), status_of(run)})}, tail;
  if (curves.plot.train_lines == 0) {
    tail.emplace_back("no step has been recorded yet");
  } else {
    tail.push_back(
        joined({value("loss {:.4f}", curves.loss, ""), value("gradient norm {:.3g}", curves.gradient_norm, ""),
                value("learning rate {:.3g}", curves.learning_rate, ""), value("epoch {:.3g}", curves.epoch, "")}));
    tail.push_back(speed(run, steps, now));
    if (curves.plot.skipped > 0) tail.push_back(fmt::format("skipped steps: {:.0f}", curves.plot.skipped));
  }
  for (std::size_t i = 0; i < std::min<std::size_t>(kMostEvaluations, curves.evaluations.size()); ++i) {
    tail.push_back(evaluation(curves.evaluations[i]));
  }
  for (const std::string& note : run.notes) {
    if (note.starts_with("Lines of")) tail.push_back(note);
  }
  std::vector<std::string> lines = head;
  if (view.curve) {
    const int room = view.rows - 2 - static_cast<int>(head.size() + tail.size());
    const TerminalCanvas canvas{
        .columns = view.columns - 1, .rows = std::min(room, kMostCurveRows), .braille = view.braille};
    const std::vector<std::string> curve = terminal_curve(curves.plot.train_loss.buckets(), canvas);
    lines.insert(lines.end(), curve.begin(), curve.end());
  }
  lines.insert(lines.end(), tail.begin(), tail.end());
  if (view.curve && static_cast<int>(lines.size()) >= view.rows)
    lines.resize(static_cast<std::size_t>(std::max(1, view.rows - 1)));
  for (std::string& line : lines) {
    line = printable(line);
    if (view.curve) line = first_characters(line, static_cast<std::size_t>(std::max(1, view.columns - 1)));
  }
  return lines;
}

}  // namespace megatron

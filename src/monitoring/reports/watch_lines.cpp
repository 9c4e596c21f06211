// The view of a run that --watch shows: watch_lines() of watch.h.
#include <algorithm>
#include <cmath>
#include <initializer_list>

#include "base/text/characters.h"
#include "base/text/text.h"
#include "monitoring/metrics/progress.h"
#include "monitoring/metrics/run_watch.h"
#include "monitoring/plots/axis.h"
#include "monitoring/plots/terminal_curve.h"
#include "monitoring/reports/report.h"
#include "monitoring/reports/watch.h"

namespace megatron {

namespace {

constexpr int kMostCurveRows = 20, kMostShownEvaluations = 4, kBar = 30;

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

// Without those of the `expendable` parts, in their order, for which a line of `width` characters has no room.
std::string joined(std::vector<std::string> parts, std::size_t width, std::initializer_list<std::size_t> expendable) {
  for (const std::size_t part : expendable) {
    if (joined(parts).size() <= width) break;
    if (part < parts.size()) parts[part].clear();
  }
  return joined(parts);
}

std::string speed(const RunRecord& run, double steps, double now, std::size_t width) {
  const RunCurves& curves = run.curves;
  const std::string tokens =
      std::isfinite(curves.tokens_per_second) ? short_label(std::round(curves.tokens_per_second)) + " tokens/s" : "";
  const double since = now - curves.time, mean = curves.mean_step_seconds.value();
  std::string to_go;
  if (run.running && steps > curves.plot.last_step && mean > 0) {
    const double all = (steps - curves.plot.last_step) * mean;
    to_go = format_duration(std::max(0.0, all - std::max(0.0, since))) + " to go";
  }
  const std::string last = run.running && since > 2 ? "last line " + about(since) + " ago" : "";
  return joined({tokens, value("{:.4g}", curves.step_seconds, " s per step"), to_go, last}, width, {1, 3, 0});
}

std::string evaluation(const EvaluationSummary& one) {
  const std::string accuracy = std::isfinite(one.accuracy) ? fmt::format("accuracy {:.2f} %", 100 * one.accuracy) : "";
  const std::string best = one.count > 1 && one.best_step != one.last_step
                               ? fmt::format("best {:.4f} after {:.0f}", one.best_loss, one.best_step)
                               : "";
  return joined({fmt::format("{} after step {:.0f}:", one.name, one.last_step), value("loss {:.4f}", one.last_loss, ""),
                 value("perplexity {:.2f}", one.perplexity, ""), accuracy, best});
}

/// The layer whose busiest expert has most.
std::string expert_line(const RunCurves& curves) {
  if (curves.experts.empty()) return "";
  const auto share = [](const ExpertLoad& load) { return load.shares[load.busiest()]; };
  const ExpertLoad& most = *std::max_element(curves.experts.begin(), curves.experts.end(),
                                             [&](const auto& a, const auto& b) { return share(a) < share(b); });
  return joined({fmt::format("experts: {:.1f} % to expert {} of {}, equal would be {:.1f} %", 100 * share(most),
                             most.busiest(), most.layer, 100 / static_cast<double>(most.shares.size())),
                 value("dropped {:.3g} %", 100 * curves.dropped, "")});
}

}  // namespace

std::vector<std::string> watch_lines(const RunRecord& run, double now, const WatchView& view) {
  const RunCurves& curves = run.curves;
  const double steps = run.config ? static_cast<double>(run.config->train.steps) : 0;
  const std::size_t width = view.curve ? static_cast<std::size_t>(std::max(1, view.columns - 1)) : std::string::npos;
  std::vector<std::string> tail,
      head = {joined({run.directory, bar(curves.plot.last_step, steps), status_of(run)}, width, {1, 0})};
  if (curves.plot.train_lines == 0) {
    tail.emplace_back("no step has been recorded yet");
  } else {
    tail.push_back(
        joined({value("loss {:.4f}", curves.loss, ""), value("gradient norm {:.3g}", curves.gradient_norm, ""),
                value("learning rate {:.3g}", curves.learning_rate, ""), value("epoch {:.3g}", curves.epoch, "")},
               width, {3, 2, 1}));
    tail.push_back(speed(run, steps, now, width));
    if (const std::string experts = expert_line(curves); !experts.empty()) tail.push_back(experts);
    if (curves.plot.skipped > 0) tail.push_back(fmt::format("skipped steps: {:.0f}", curves.plot.skipped));
  }
  for (std::size_t i = 0; i < std::min<std::size_t>(kMostShownEvaluations, curves.evaluations.size()); ++i) {
    tail.push_back(evaluation(curves.evaluations[i]));
  }
  for (const std::string& note : run.notes) {
    if (note.starts_with("Lines of")) tail.push_back(note);
  }
  if (curves.unreadable > 0)
    tail.push_back(fmt::format("Lines of metrics.jsonl that cannot be read: {}.", curves.unreadable));
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
    if (view.curve) line = first_characters(line, width);
  }
  return lines;
}

}  // namespace megatron

// The page that compares several runs: comparison_report() of report.h.
#include <algorithm>
#include <cmath>
#include <functional>

#include "monitoring/metrics/progress.h"
#include "monitoring/plots/axis.h"
#include "monitoring/plots/chart.h"
#include "monitoring/plots/svg.h"
#include "monitoring/reports/config_changes.h"
#include "monitoring/reports/html.h"
#include "monitoring/reports/report.h"

namespace megatron {

namespace {

// Runs of one name, in different folders, need all of it.
std::vector<std::string> names_of(const std::vector<RunRecord>& runs) {
  std::vector<std::string> names;
  for (const RunRecord& run : runs) {
    bool unique = true;
    for (const RunRecord& other : runs) unique = unique && (&other == &run || other.name != run.name);
    names.push_back(unique ? run.name : run.directory);
  }
  return names;
}

/// `chart` with one curve of each run, empty where it has none.
template <class Get>
std::string figure(const std::vector<RunRecord>& runs, Chart chart, Series look, Get curve_of) {
  const std::vector<std::string> names = names_of(runs);
  for (std::size_t i = 0; i < runs.size(); ++i) {
    look.name = names[i];
    chart.add(look, std::invoke(curve_of, runs[i].curves.plot));
  }
  return chart_figure(chart);
}

DecimatedCurve named(const PlotData::Curves& curves, const std::string& name) {
  for (const auto& [known, curve] : curves) {
    if (known == name) return curve;
  }
  return {};
}

std::string charts(const std::vector<RunRecord>& runs) {
  const Series smooth{.smooth = true}, marked{.marked = true};
  std::string out = "<div class=\"charts\">\n";
  out += figure(runs, {.title = "Training loss"}, smooth, &PlotData::train_loss);
  std::vector<std::string> evaluated;  // by any of them
  for (const RunRecord& run : runs) {
    for (const auto& [name, curve] : run.curves.plot.evaluations) {
      if (std::find(evaluated.begin(), evaluated.end(), name) == evaluated.end()) evaluated.push_back(name);
    }
  }
  for (const std::string& name : evaluated) {
    const auto evaluation = [&](const PlotData& plot) { return named(plot.evaluations, name); };
    out += figure(runs, {.title = "Loss, " + name}, marked, evaluation);
  }
  out += figure(runs, {.title = "Learning rate", .from_zero = true}, {}, &PlotData::learning_rate);
  out += figure(runs, {.title = "Gradient norm", .unit = "before clipping", .from_zero = true}, smooth,
                &PlotData::gradient_norm);
  out += figure(runs, {.title = "Throughput", .unit = "tokens per second, whole job", .from_zero = true}, smooth,
                &PlotData::throughput);
  return out + "</div>\n";
}

std::string table(const std::vector<RunRecord>& runs) {
  const std::vector<std::string> names = names_of(runs);
  std::vector<HtmlRow> rows;
  for (std::size_t i = 0; i < runs.size(); ++i) {
    const RunRecord& run = runs[i];
    std::string best = "-";
    if (!run.curves.evaluations.empty()) {
      const EvaluationSummary& one = run.curves.evaluations.front();
      best = fmt::format("{} ({}, step {})", html_number(one.best_loss), one.name, html_number(one.best_step, 12));
    }
    const double seconds = trained_seconds(run);
    const bool any = run.curves.plot.train_lines > 0;
    rows.push_back({names[i], status_of(run), any ? html_number(run.curves.loss) : "-", best,
                    any ? short_label(run.curves.tokens) : "-",
                    any ? html_number(run.curves.tokens_per_second, 4) : "-",
                    run.programs.empty() ? "-" : fmt::format("{}", run.programs.back().start.ranks),
                    seconds > 0 ? format_duration(seconds) : "-", html_number(run.curves.plot.skipped, 9)});
  }
  return html_table(
      {"run", "status", "training loss", "best evaluation", "tokens", "tokens/s", "ranks", "time", "skipped"}, rows);
}

std::string differences(const std::vector<RunRecord>& runs) {
  std::vector<std::string> configs;
  HtmlRow heads = {"key"};
  const std::vector<std::string> names = names_of(runs);
  for (std::size_t i = 0; i < runs.size(); ++i) {
    if (runs[i].config_text.empty()) continue;
    configs.push_back(runs[i].config_text);
    heads.push_back(names[i]);
  }
  std::vector<HtmlRow> rows;
  for (const ChangedKey& key : changed_between(configs)) {
    rows.push_back({key.key});
    rows.back().insert(rows.back().end(), key.values.begin(), key.values.end());
  }
  return rows.empty() ? "<p>None.</p>\n" : html_table(heads, rows);
}

}  // namespace

std::string comparison_report(const std::vector<RunRecord>& runs) {
  std::vector<std::string> notes;
  const std::vector<std::string> names = names_of(runs);
  std::string title;
  for (std::size_t i = 0; i < runs.size(); ++i) {
    title += (i == 0 ? "" : ", ") + names[i];
    for (const std::string& note : runs[i].notes) notes.push_back(names[i] + ": " + note);
  }
  std::string body = fmt::format("<h1>{} runs compared</h1>\n", runs.size());
  body += html_section("Runs", table(runs));
  body += html_section("What is missing here", html_list(notes));
  body += html_section("Curves", charts(runs));
  body += html_section("Keys that differ", differences(runs));
  return html_page(title, body);
}

}  // namespace megatron

#include "monitoring/reports/report.h"

#include <algorithm>
#include <cmath>

#include "base/core/error.h"
#include "base/system/durable_file.h"
#include "base/text/byte_text.h"
#include "base/text/text.h"
#include "monitoring/metrics/progress.h"
#include "monitoring/metrics/run_charts.h"
#include "monitoring/plots/axis.h"
#include "monitoring/plots/svg.h"
#include "monitoring/reports/config_changes.h"
#include "monitoring/reports/data_origin.h"
#include "monitoring/reports/html.h"
#include "monitoring/reports/schedule_drawing.h"

namespace megatron {

namespace {

std::string charts(const PlotData& plot) {
  std::string out = "<div class=\"charts\">\n";
  for (const Chart& chart : loss_charts(plot)) out += chart_figure(chart);
  for (const Chart& chart : health_charts(plot)) out += chart_figure(chart);
  out += "</div>\n";
  if (plot.skipped == 0)
    out += "<p class=\"soft\">No step was skipped for a loss or gradient that is not finite.</p>\n";
  return out;
}

std::string evaluations(const RunCurves& curves) {
  std::vector<HtmlRow> rows;
  for (const EvaluationSummary& one : curves.evaluations) {
    rows.push_back({one.name, fmt::format("{}", one.count), html_number(one.first_loss),
                    fmt::format("{} (step {})", html_number(one.best_loss), html_number(one.best_step, 12)),
                    fmt::format("{} (step {})", html_number(one.last_loss), html_number(one.last_step, 12)),
                    html_number(one.perplexity),
                    std::isfinite(one.accuracy) ? fmt::format("{:.2f} %", 100 * one.accuracy) : "-"});
  }
  return html_table({"on", "times", "first loss", "best loss", "last loss", "last perplexity", "last accuracy"}, rows);
}

std::string time_and_memory(const RunRecord& run) {
  const ProgramEnd* end = nullptr;
  for (const PastProgram& program : run.programs) {
    if (program.end) end = &*program.end;
  }
  if (end == nullptr) return "";
  const std::string of_last =
      run.programs.size() > 1 ? "<p class=\"soft\">Of the last program that came to its end.</p>\n" : "";
  double total = 0;
  for (const auto& [name, row] : end->seconds) total += row.mean;
  std::vector<HtmlBar> bars;
  std::vector<HtmlRow> seconds, bytes;
  for (const auto& [name, row] : end->seconds) {
    const double share = total > 0 ? 100 * row.mean / total : 0;
    bars.push_back({name, row.mean, fmt::format("{:.1f} %", share)});
    seconds.push_back({name, fmt::format("{:.2f}", row.least), fmt::format("{:.2f}", row.mean),
                       fmt::format("{:.2f}", row.most), fmt::format("{:.1f} %", share)});
  }
  std::string out = html_section(
      "Where the time went",
      of_last + html_bars(bars) + html_table({"seconds per rank", "min", "average", "max", "share"}, seconds));
  bars.clear();
  for (const auto& [name, row] : end->bytes) {
    if (name != "sent") bars.push_back({name, row.most, format_bytes(row.most)});
    bytes.push_back({name, format_bytes(row.least), format_bytes(row.mean), format_bytes(row.most)});
  }
  return out + html_section("Memory and traffic per rank",
                            of_last + html_bars(bars) + html_table({"", "min", "average", "max"}, bytes) +
                                "<p class=\"soft\">The bars are those of the rank with most. Predicted and used are of "
                                "the training itself; resident is what the system counts, program and libraries "
                                "included.</p>\n");
}

std::string experts(const RunCurves& curves) {
  if (curves.experts.empty()) return "";
  std::vector<HtmlBar> bars;
  std::vector<HtmlRow> rows;
  for (const ExpertLoad& load : curves.experts) {
    const double most = load.shares[load.busiest()], least = *std::min_element(load.shares.begin(), load.shares.end());
    const auto idle = std::count(load.shares.begin(), load.shares.end(), 0.0);
    bars.push_back({load.layer, most, fmt::format("{:.1f} %", 100 * most)});
    rows.push_back({load.layer, fmt::format("{:.1f} %", 100 / static_cast<double>(load.shares.size())),
                    fmt::format("{:.1f} %", 100 * least), fmt::format("{:.1f} %", 100 * most),
                    fmt::format("{}", load.busiest()), fmt::format("{}", idle)});
  }
  const std::string dropped = std::isfinite(curves.dropped)
                                  ? fmt::format(" {:.3g} % of them had no room and were dropped.", 100 * curves.dropped)
                                  : "";
  return html_bars(bars) +
         html_table(
             {"share of a layer's choices", "if equal", "least", "most", "busiest expert", "experts without any"},
             rows) +
         fmt::format("<p class=\"soft\">Of the last recorded step. The bars are the busiest experts'.{}</p>\n",
                     dropped);
}

std::string programs(const RunRecord& run) {
  std::vector<HtmlRow> rows;
  std::vector<std::string> changes;
  for (std::size_t i = 0; i < run.programs.size(); ++i) {
    const auto& [start, end] = run.programs[i];
    const bool last = i + 1 == run.programs.size();
    const std::string ended =
        end ? fmt::format("{}, step {}", end->how, end->step)
            : (last && run.running ? "is running" : "no record: it failed, crashed or was killed");
    rows.push_back({html_time(start.time), fmt::format("{}", start.step), ended,
                    end ? format_duration(end->time - start.time) : "-",
                    fmt::format("{} on {}: {}", counted(start.ranks, "rank"), counted(start.hosts, "host"), start.host),
                    start.device, start.version});
    if (i == 0 || start.config.empty() || run.programs[i - 1].start.config.empty()) continue;
    for (const ChangedKey& key : changed_between({run.programs[i - 1].start.config, start.config})) {
      changes.push_back(
          fmt::format("From step {}: {} = {} (was {})", start.step, key.key, key.values[1], key.values[0]));
    }
  }
  std::string out = html_table({"started (UTC)", "from step", "ended", "took", "ranks", "device", "version"}, rows);
  if (run.programs.empty()) return out;
  const ProgramStart& start = run.programs.back().start;
  out += fmt::format("<p class=\"soft\">The last one: {} per rank{}{}.</p>\n", counted(start.threads, "thread"),
                     start.transport.empty() ? "" : ", " + escaped(start.transport),
                     start.job.empty() ? "" : ", " + escaped(start.job));
  if (run.programs.size() < 2) return out;
  return out + (changes.empty() ? "<p>The configuration has not changed between them.</p>\n"
                                : "<p>Changes of the configuration:</p>\n" + html_list(changes));
}

std::string warnings(const RunRecord& run) {
  if (run.warnings.empty()) return "";
  const std::string before =
      run.warnings_before == 0
          ? ""
          : fmt::format("<p class=\"soft\">{} earlier ones are in run.log.</p>\n", run.warnings_before);
  return before + html_list(run.warnings);
}

}  // namespace

std::string status_of(const RunRecord& run) {
  const double step = run.curves.plot.last_step;
  const std::string at = run.config && run.config->train.steps > 0
                             ? fmt::format("step {} of {}", html_number(step, 12),
                                           html_number(static_cast<double>(run.config->train.steps), 12))
                             : fmt::format("step {}", html_number(step, 12));
  if (run.running) return "Running, " + at;
  if (!run.programs.empty() && run.programs.back().end) {
    std::string how = run.programs.back().end->how;
    if (!how.empty()) how[0] = static_cast<char>(std::toupper(static_cast<unsigned char>(how[0])));
    return fmt::format("{}, {}", how, at);
  }
  if (!run.programs.empty())
    return "Ended without a record (it failed, crashed or was killed; or it runs where its lock is not seen), " + at;
  return "At " + at;
}

double trained_seconds(const RunRecord& run) {
  double sum = 0;
  for (const PastProgram& program : run.programs) {
    const double end = program.end ? program.end->time : &program == &run.programs.back() ? run.curves.time : 0;
    if (end > program.start.time && program.start.time > 0) sum += end - program.start.time;
  }
  return sum;
}

std::string run_report(const RunRecord& run) {
  const RunCurves& curves = run.curves;
  std::vector<std::pair<std::string, std::string>> tiles = {{"training loss", html_number(curves.loss)}};
  if (curves.plot.train_lines == 0) tiles.clear();
  for (const EvaluationSummary& one : curves.evaluations) {
    if (std::isfinite(one.best_loss) && tiles.size() < 4)
      tiles.emplace_back("best loss, " + one.name, html_number(one.best_loss));
  }
  if (curves.plot.train_lines > 0) {
    tiles.emplace_back("tokens", short_label(curves.tokens));
    tiles.emplace_back("epochs", html_number(curves.epoch, 3));
    tiles.emplace_back("tokens per second", html_number(curves.tokens_per_second, 4));
    tiles.emplace_back("TFLOP/s per rank", html_number(curves.tflops_per_rank, 3));
    tiles.emplace_back("skipped steps", html_number(curves.plot.skipped, 9));
  }
  if (const double seconds = trained_seconds(run); seconds > 0) tiles.emplace_back("time", format_duration(seconds));
  std::string body = fmt::format("<h1>{}</h1>\n<p>{}. <span class=\"soft\">{}</span></p>\n", escaped(run.name),
                                 escaped(status_of(run)), escaped(run.directory));
  body += html_section("What is missing here", html_list(run.notes));
  if (curves.plot.train_lines == 0 && curves.evaluations.empty()) {
    body += "<p>Nothing has been recorded yet: there are no curves to show.</p>\n";
  } else {
    body += html_tiles(tiles) + html_section("Curves", charts(curves.plot));
  }
  body += html_section("Evaluations", evaluations(curves));
  body += html_section("Experts", experts(curves));
  body += time_and_memory(run);
  if (run.config) {
    const std::string real = run.traced ? schedule_drawing(*run.traced) : "";
    body += html_section("Schedule of a step", real + schedule_drawing(*run.config));
  }
  body += html_section("Where the data comes from", data_origin(run.provenance));
  body += html_section("Programs that trained it", programs(run));
  body += html_section("Warnings", warnings(run));
  if (!run.config_text.empty()) body += html_section("Configuration", html_folded("config.toml", run.config_text));
  return html_page(run.name, body);
}

void write_run_report(const std::string& directory, const RunCurves& curves, Log& log) {
  try {
    replace_file_durably(directory + "/report.html", run_report(read_run(directory, &curves)));
  } catch (const std::exception& error) {  // a page is not worth a run's end
    log.warning("report.html was not written: {}", error.what());
  }
}

}  // namespace megatron

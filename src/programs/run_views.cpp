#include "programs/run_views.h"

#include "base/core/error.h"
#include "base/system/log.h"
#include "distributed/process/run_lock.h"
#include "distributed/process/stop_signals.h"
#include "monitoring/metrics/tensorboard.h"
#include "monitoring/reports/report.h"
#include "monitoring/reports/watch.h"

namespace megatron {

namespace {

constexpr std::size_t kMostCompared = 8;  // dashes and marks that a chart tells apart

int write_reports(const RunViews& views) {
  Log log(true);
  const bool single = views.reports.size() == 1;
  OutputFile output = views.output;
  if (output.path.empty() && !single) output = {.option = "--report", .path = "report.html", .force = output.force};
  check_output(output);
  std::vector<RunRecord> runs;
  for (const std::string& directory : views.reports) {
    runs.push_back(read_run(directory));
    runs.back().running = run_is_locked(directory);
  }
  const std::string page = single ? run_report(runs[0]) : comparison_report(runs);
  if (output.path.empty()) {  // the run's own
    output.path = runs[0].directory + "/report.html";
    replace_file_durably(output.path, page);
  } else {
    write_output(output, page);
  }
  log.info("wrote {}", output.path);
  return 0;
}

int write_events(const std::string& directory) {
  require_run(directory);
  Log log(true);
  const RunLock lock(directory, log);  // a job that trains there writes events itself
  const std::int64_t lines = rebuild_tensorboard(directory, log);
  log.info("wrote {} lines of metrics to {}/tensorboard", lines, directory);
  return 0;
}

}  // namespace

void add_run_views(boost::program_options::options_description& options, RunViews& views) {
  namespace po = boost::program_options;
  auto add = options.add_options();
  add("watch", po::value(&views.watch)->value_name("RUN"),
      "follows a run from another terminal: loss curve, throughput, time to go, evaluations; ends when the run does. "
      "RUN is its run.directory. Where standard output is no terminal, prints once how the run is doing");
  add("report", po::value(&views.reports)->multitoken()->value_name("RUN..."),
      "writes report.html of a run, or one page that compares up to 8 runs");
  add("output", po::value(&views.output.path)->value_name("FILE"),
      "with --report: where to write it; default: report.html in the run's folder, for several runs in this one");
  add("force", po::bool_switch(&views.output.force),
      "replaces the file of --output, or of a comparison, if there is one");
  add("tensorboard", po::value(&views.tensorboard)->value_name("RUN"),
      "writes TensorBoard events of a run anew, from its metrics.jsonl");
}

void check_run_views(const RunViews& views, const std::string& input) {
  const int asked =
      (views.watch.empty() ? 0 : 1) + (views.tensorboard.empty() ? 0 : 1) + (views.reports.empty() ? 0 : 1);
  verify(asked <= 1, ErrorKind::configuration, "--watch, --report and --tensorboard: give one of them");
  verify(asked == 0 || input.empty(), ErrorKind::configuration,
         "{}: --watch, --report and --tensorboard take the run.directory of a run, and no input file", input);
  verify(views.output.path.empty() || !views.reports.empty(), ErrorKind::configuration, "--output belongs to --report");
  verify(!views.output.force || !views.output.path.empty() || views.reports.size() > 1, ErrorKind::configuration,
         "--force is for the file of --output, and for report.html of several runs");
  verify(views.reports.size() <= kMostCompared, ErrorKind::configuration,
         "--report: {} runs; a page compares at most {}", views.reports.size(), kMostCompared);
}

int show_runs(const RunViews& views) {
  if (!views.reports.empty()) return write_reports(views);
  if (!views.tensorboard.empty()) return write_events(views.tensorboard);
  const StopSignals signals;
  return watch_run(views.watch, signals);
}

}  // namespace megatron

// The readers of a run's folder: whatever its files hold, it can be reported, watched and resumed. The files are
// divided by NUL bytes: metrics.jsonl, history.jsonl, run.log, trace.json, config.toml; later NULs belong to the last
// one.
#include <nlohmann/json.hpp>

#include "base/text/text.h"
#include "fuzz/fuzz.h"
#include "fuzz/scratch_folder.h"
#include "monitoring/metrics/metrics.h"
#include "monitoring/reports/report.h"
#include "monitoring/reports/watch.h"

using namespace megatron;

namespace {

constexpr const char* kFiles[] = {"metrics.jsonl", "history.jsonl", "run.log", "trace.json", "config.toml"};

void write_files(const fuzz::ScratchFolder& folder, std::string_view text) {
  for (const char* name : kFiles) {
    const bool last = name == std::end(kFiles)[-1];
    const std::size_t end = last ? text.size() : std::min(text.find('\0'), text.size());
    folder.write(name, text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
}

void check_lines(const RunRecord& run) {
  for (const int columns : {1, 30, 80, 300}) {
    for (const bool braille : {false, true}) {
      const auto lines = watch_lines(run, 1.7e9, {.columns = columns, .rows = 24, .curve = true, .braille = braille});
      fuzz::require(lines.size() < 24, "more lines than a terminal has");
      for (const std::string& line : lines) {
        fuzz::require(printable(line) == line, "a line that steers the terminal");
        fuzz::require(std::string_view(line).find('\n') == std::string_view::npos, "a line that is two");
      }
    }
  }
}

/// Once cut back, nothing is left to remove, and all that is there is read.
void check_resume(const std::string& metrics) {
  std::int64_t visited = 0;
  const auto count = [&](const nlohmann::json&, std::string_view) { ++visited; };
  const RemovedMetrics removed = truncate_metrics(metrics, 100, {"validation"}, count);
  fuzz::require((removed.unreadable > 0) == !removed.kept_as.empty(), "what cannot be read is not kept");
  const std::int64_t kept = visited;
  const RemovedMetrics again = truncate_metrics(metrics, 100, {"validation"}, count);
  fuzz::require(again.lines == 0 && again.unreadable == 0 && visited == 2 * kept, "cutting back twice is not once");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const fuzz::ScratchFolder folder;
  write_files(folder, {reinterpret_cast<const char*>(data), size});
  fuzz::allow({ErrorKind::filesystem}, [&] {  // a pointer of Git LFS
    const RunRecord run = read_run(folder.path());
    check_lines(run);
    fuzz::require(run_report(run).find("<script") == std::string::npos, "a page with a script");
    comparison_report({run, run});
    check_resume(folder.file("metrics.jsonl"));
  });
  return 0;
}

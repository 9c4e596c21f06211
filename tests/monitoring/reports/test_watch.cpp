#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "base/system/file_lock.h"
#include "monitoring/reports/report.h"
#include "monitoring/reports/runs_on_disk.h"
#include "monitoring/reports/watch.h"
#include "support/catch.h"
#include "support/parts_of_text.h"

using namespace megatron;
using namespace megatron::test;

namespace {

std::string joined(const std::vector<std::string>& lines) {
  std::string text;
  for (const std::string& line : lines) text += line + "\n";
  return text;
}

}  // namespace

TEST_CASE("watch: complete lines are added and a replaced file is read anew") {
  const TemporaryFolder run;
  const std::string path = run.file("metrics.jsonl");
  MetricsFollower follower(path);
  RunCurves curves;
  CHECK_FALSE(follower.read_on(curves));  // there is none yet
  write_file(path, train_line(1) + train_line(2).substr(0, 30));
  CHECK(follower.read_on(curves));
  CHECK(curves.plot.last_step == 1);
  write_file(path, train_line(1) + train_line(2) + "rubbish\n" + train_line(3));
  CHECK(follower.read_on(curves));
  CHECK(curves.plot.train_lines == 3);
  CHECK(curves.unreadable == 1);
  CHECK_FALSE(follower.read_on(curves));
  write_file(run.file("new"), train_line(1) + train_line(2));  // as after a resume from step 2
  std::filesystem::rename(run.file("new"), path);
  CHECK(follower.read_on(curves));
  CHECK(curves.plot.train_lines == 2);
  CHECK(curves.unreadable == 0);
  CHECK(curves.plot.last_step == 2);
}

TEST_CASE("watch: a signal ends the reading of a long file that later continues") {
  const TemporaryFolder run;
  write_file(run.file("metrics.jsonl"), train_line(1) + train_line(2) + train_line(3));
  MetricsFollower follower(run.file("metrics.jsonl"));
  RunCurves curves;
  int asked = 0;
  follower.read_on(curves, [&] { return ++asked == 3; });
  CHECK(curves.plot.last_step == 2);
  CHECK(follower.read_on(curves));
  CHECK(curves.plot.train_lines == 3);
}

TEST_CASE("watch: facts are read in bounded time however long the files are") {
  const TemporaryFolder run;
  make_whole_run(run.path());
  std::filesystem::resize_file(run.file("run.log"), std::uintmax_t{20} << 30);  // zeros, which take no space on disk
  const std::string history = contents_of(run.file("history.jsonl"));
  std::filesystem::resize_file(run.file("history.jsonl"), std::uintmax_t{20} << 30);
  std::ofstream(run.file("history.jsonl"), std::ios::app) << "\n" << history;
  const RunRecord record = read_run(run.path());
  CHECK(record.programs.size() == 2);
  CHECK(record.warnings.empty());
  CHECK(has(joined(record.notes), "Warnings are those of the last 64.0 MiB of run.log."));
}

TEST_CASE("watch: it shows the bar and speed and time to go and evaluations") {
  const TemporaryFolder run;
  make_whole_run(run.path());
  RunRecord record = read_run(run.path());
  record.curves.plot = {};
  record.curves = {};
  for (int step = 1; step <= 10; ++step) record.curves.add(nlohmann::json::parse(train_line(step)));
  record.curves.add(nlohmann::json::parse(evaluation_line(10, 3)));
  record.running = true;
  const std::string text = joined(watch_lines(record, 1.7e9 + 10, {.curve = false}));
  for (const char* part :
       {"[=======                       ] 25 %", "Running, step 10 of 40", "loss 2.3000", "256 tokens/s",
        "0.25 s per step", "0:08 to go", "validation after step 10:   loss 3.0000"}) {
    INFO(part << "\n" << text);
    CHECK(has(text, part));
  }
  CHECK_FALSE(has(text, "cannot be read"));
  record.curves.unreadable = 2;
  CHECK(
      has(joined(watch_lines(record, 1.7e9 + 10, {.curve = false})), "Lines of metrics.jsonl that cannot be read: 2"));
  // A narrow terminal shows how far the run is and the time to go before anything else.
  record.directory = "runs/with_a_long_name";
  for (const int columns : {30, 60}) {
    const std::string narrow = joined(watch_lines(record, 1.7e9 + 10, {.columns = columns, .braille = false}));
    INFO(narrow);
    CHECK(has(narrow, "Running, step 10 of 40"));
    CHECK(has(narrow, "0:08 to go"));
    CHECK(has(narrow, "0.25 s per step") == (columns == 60));
  }
}

TEST_CASE("watch: the time to go is by the steps of now, not by the first one") {
  const TemporaryFolder run;
  make_whole_run(run.path());
  RunRecord record = read_run(run.path());
  record.curves = {};
  for (int step = 1; step <= 3; ++step) {
    nlohmann::json line = nlohmann::json::parse(train_line(step));
    line["step_seconds"] = step == 1 ? 60 : 1;
    record.curves.add(line);
  }
  record.running = true;
  CHECK(has(joined(watch_lines(record, 1.7e9 + 3, {.curve = false})), "0:37 to go"));
}

TEST_CASE("watch: no line is wider and no picture higher than the terminal") {
  const TemporaryFolder run;
  make_whole_run(run.path());
  const RunRecord record = read_run(run.path());
  for (const int columns : {1, 10, 24, 80, 300}) {
    for (const int rows : {2, 6, 24, 100}) {
      const auto lines =
          watch_lines(record, 1.7e9, {.columns = columns, .rows = rows, .curve = true, .braille = false});
      INFO(columns << " x " << rows);
      CHECK(static_cast<int>(lines.size()) < rows);
      for (const std::string& line : lines) CHECK(static_cast<int>(line.size()) <= columns);
    }
  }
  CHECK(has(joined(watch_lines(record, 1.7e9, {.braille = false})), "*"));
}

TEST_CASE("watch: a run that has recorded nothing says so") {
  const TemporaryFolder run;
  write_file(run.file("config.toml"), kConfig);
  CHECK(has(joined(watch_lines(read_run(run.path()), 1.7e9, {})), "no step has been recorded yet"));
}

TEST_CASE("watch: a lock is seen while another process holds it") {
  const TemporaryFolder run;
  CHECK_FALSE(run_is_locked(run.path()));
  int ready[2], end[2];
  REQUIRE(::pipe(ready) + ::pipe(end) == 0);
  const pid_t child = ::fork();
  if (child == 0) {
    const FileLock lock(run.file("lock"));
    char c = 'x';
    const bool told = ::write(ready[1], &c, 1) == 1 && ::read(end[0], &c, 1) == 1;
    ::_exit(told ? 0 : 1);
  }
  char c = 'x';
  REQUIRE(::read(ready[0], &c, 1) == 1);
  CHECK(run_is_locked(run.path()));
  CHECK(run_is_locked(run.path()));  // it is only looked at
  REQUIRE(::write(end[1], &c, 1) == 1);
  int status = -1;
  ::waitpid(child, &status, 0);
  CHECK(status == 0);
  CHECK_FALSE(run_is_locked(run.path()));
}

TEST_CASE("watch: the busiest expert of all layers") {
  const TemporaryFolder folder;
  const std::string
      line = train_line(1),
      experts = R"("experts":{"dropped":0.02,"router_gap":0.1,"load":{"layers.10":[0.25,0.75],"layers.2":[0.5,0.5]}},)";
  RunRecord run;
  run.curves.add(nlohmann::json::parse(line.substr(0, 1) + experts + line.substr(1)));
  REQUIRE(run.curves.experts.size() == 2);
  CHECK(run.curves.experts[0].layer == "layers.2");  // in the model's order
  const std::string text = joined(watch_lines(run, 0, {}));
  INFO(text);
  CHECK(has(text, "experts: 75.0 % to expert 1 of layers.10, equal would be 50.0 %"));
  CHECK(has(text, "dropped 2 %"));
  const std::string page = run_report(run);
  CHECK(has(page, "<h2>Experts</h2>"));
  CHECK(has(page, "75.0 %"));
  CHECK_FALSE(has(run_report(RunRecord()), "Experts"));
}

#include <filesystem>

#include "monitoring/plots/markup.h"
#include "monitoring/reports/config_changes.h"
#include "monitoring/reports/report.h"
#include "monitoring/reports/runs_on_disk.h"
#include "monitoring/reports/schedule_drawing.h"
#include "support/catch.h"
#include "support/require_error.h"

using namespace megatron;
using namespace megatron::test;

namespace {

/// Every element that needs an end has one, in order; nothing runs, and nothing is fetched from elsewhere.
void check_page(const std::string& html) {
  const std::size_t from = html.find("<body>");
  check_well_formed(html.substr(from, html.find("</body>") + 7 - from));
  for (const char* never : {"<script", "javascript:", "http:", "https:", "src=", "href=", "url(", "@import", ">nan",
                            "\"nan", " nan", ">inf"}) {
    INFO(never);
    CHECK_FALSE(has(html, never));
  }
  CHECK(has(html, "prefers-color-scheme:dark"));
}

}  // namespace

TEST_CASE("report: a damaged provenance.json is said to be one") {
  const TemporaryFolder run;
  make_whole_run(run.path());
  for (const char* const damaged : {"{", "[1]", R"({"a": 1})", R"({"a": {"steps": [[{"step": 3}]]}})"}) {
    CAPTURE(damaged);
    write_file(run.path() + "/provenance.json", damaged);
    const std::string html = run_report(read_run(run.path()));
    check_page(html);
    CHECK(has(html, "provenance.json is not written as"));
  }
}

TEST_CASE("report: a whole run shows all its sections") {
  const TemporaryFolder run;
  make_whole_run(run.path());
  const std::string html = run_report(read_run(run.path()));
  check_page(html);
  for (const char* part : {"Complete, step 40 of 40",
                           ">Loss <",
                           "Learning rate",
                           "Gradient norm",
                           "Throughput",
                           "Skipped steps",
                           "<td>4</td>",
                           "3 (step 40)",
                           "2.0 KiB",
                           "1.5 KiB",
                           "33.3 %",
                           "stage 1",
                           "bubble 20.0 %",
                           "stopped on SIGTERM, step 20",
                           "learning_rate.peak = 0.001 (was 0.002)",
                           "2 ranks on 1 host: node&lt;1&gt;",
                           "a CPU",
                           "9.8.7",
                           "a &lt;script&gt;alert(1)&lt;/script&gt;",
                           "data/&lt;corpus&gt;",
                           "Where the data comes from",
                           "<td>634</td>",
                           "c 50, d 8, e 7, others",
                           "3 threads per rank"}) {
    INFO(part);
    CHECK(has(html, part));
  }
  CHECK_FALSE(has(html, "What is missing"));
  CHECK_FALSE(has(html, "no warning: this line"));
}

TEST_CASE("report: a run of an older version says what is not known") {
  const TemporaryFolder run;
  make_whole_run(run.path());
  std::filesystem::remove(run.file("history.jsonl"));
  write_file(run.file("config.toml"), "[model]\nno_longer_known = 3\n");
  const std::string html = run_report(read_run(run.path()));
  check_page(html);
  CHECK(has(html, "There is no history.jsonl"));
  CHECK(has(html, "This version cannot read config.toml"));
  CHECK(has(html, "no_longer_known = 3"));  // it is shown as it is
  CHECK(has(html, "At step 40"));
  CHECK_FALSE(has(html, "Where the time went"));
}

TEST_CASE("report: damaged lines are counted, and what is whole is shown") {
  const TemporaryFolder run;
  make_whole_run(run.path());
  std::string metrics = contents_of(run.file("metrics.jsonl"));
  metrics.insert(metrics.find('\n') + 1,
                 "{\"kind\":\"train\",\"step\":\n\x01\x02\x03\n" + std::string(70'000, '[') + "\n");
  write_file(run.file("metrics.jsonl"), metrics + "{\"kind\":\"train\",\"step\":41,\"lo");
  write_file(run.file("history.jsonl"),
             "{\"kind\":\"start\",\"step\":\"seven\",\"ranks\":1e300,\"config\":[1]}\nrubbish\n"
             "{\"kind\":\"end\",\"seconds\":[3,{\"name\":7}],\"bytes\":\"x\",\"time\":null}\n");
  const RunRecord record = read_run(run.path());
  const std::string html = run_report(record);
  check_page(html);
  CHECK(has(html, "Lines of metrics.jsonl that cannot be read: 4."));
  CHECK(has(html, "Lines of history.jsonl that cannot be read: 1."));
  CHECK(record.curves.plot.train_lines == 40);
}

TEST_CASE("report: an empty run is a page that says so, and no run is 2") {
  const TemporaryFolder run;
  require_error(ErrorKind::configuration, {"no such run", "no such folder"}, [&] { read_run(run.file("nowhere")); });
  require_error(ErrorKind::configuration, {"no such run", "neither"}, [&] { read_run(run.path()); });
  write_file(run.file("metrics.jsonl"), "");
  const std::string html = run_report(read_run(run.path()));
  check_page(html);
  CHECK(has(html, "Nothing has been recorded yet"));
  CHECK(has(html, "has no training line"));
  CHECK(has(html, "There is no config.toml"));
}

TEST_CASE("report: a program without an end failed or was killed or still runs") {
  const TemporaryFolder run;
  make_whole_run(run.path());
  Log log(false);
  add_to_history(run.path(), history_line(start_of(30)), log);
  RunRecord record = read_run(run.path());
  CHECK(has(status_of(record), "Ended without a record"));
  CHECK(has(run_report(record), "no record: it failed, crashed or was killed"));
  record.running = true;
  CHECK(status_of(record) == "Running, step 40 of 40");
  CHECK(has(run_report(record), "is running"));
}

TEST_CASE("report: several runs share charts, and keys that differ are in a table") {
  const TemporaryFolder folder;
  for (const char* name : {"one", "two"}) {
    std::filesystem::create_directory(folder.file(name));
    make_whole_run(folder.file(name));
  }
  std::string other = kConfig;
  other.replace(other.find("layers = 2"), 10, "layers = 4");
  write_file(folder.file("two/config.toml"), other);
  const std::string html = comparison_report({read_run(folder.file("one")), read_run(folder.file("two/"))});
  check_page(html);
  for (const char* part :
       {"2 runs compared", "Loss, validation", "model.layers", "<td>2</td><td>4</td>", "class=\"c c1\""}) {
    INFO(part);
    CHECK(has(html, part));
  }
  CHECK_FALSE(has(html, "learning_rate.peak"));
}

TEST_CASE("report: it is written into the run or costs a warning") {
  const TemporaryFolder run;
  Log log(false);
  make_whole_run(run.path());
  const RunRecord whole = read_run(run.path());
  std::filesystem::remove(run.file("metrics.jsonl"));  // its curves are the caller's: it is not read
  write_run_report(run.path(), whole.curves, log);
  const std::string html = contents_of(run.file("report.html"));
  CHECK(html.starts_with("<!DOCTYPE html>"));
  CHECK(has(html, "best loss, validation"));
  write_run_report(run.file("gone"), whole.curves, log);
}

TEST_CASE("report: changed keys are compared by table and key") {
  const std::vector<ChangedKey> changed =
      changed_between({"[a]\nx = 1\ny = 2\n[b]\nx = 1\n", "[a]\nx = 1\ny = 3\n# z\n[b]\nx = 2\nw = \"=\"\n"});
  REQUIRE(changed.size() == 3);
  CHECK(changed[0].key == "a.y");
  CHECK(changed[0].values == std::vector<std::string>{"2", "3"});
  CHECK(changed[1].key == "b.x");
  CHECK(changed[2].values == std::vector<std::string>{"not set", "\"=\""});
}

TEST_CASE("schedule drawing: every schedule is drawn unless it is too large") {
  Config config;
  config.parallel.pipeline = 4;
  config.parallel.data = 1;
  config.train.global_batch_size = 8;
  for (const char* name : {"gpipe", "1f1b", "zero_bubble"}) {
    config.parallel.schedule = name;
    CHECK(has(schedule_drawing(config), "stage 3"));
  }
  CHECK(has(schedule_drawing(config), "gradients of weights"));
  config.parallel.schedule = "interleaved";
  config.parallel.virtual_stages = 2;
  CHECK(has(schedule_drawing(config), "0.1<"));
  config.parallel.pipeline = 64;
  CHECK(has(schedule_drawing(config), "Not drawn: 64 stages"));
  config.parallel.pipeline = 4;
  config.train.global_batch_size = 1'000'000;
  CHECK(has(schedule_drawing(config), "Not drawn"));
  config.train.global_batch_size = 0;
  CHECK(has(schedule_drawing(config), "does not say"));
}

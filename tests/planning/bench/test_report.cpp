// Tests of the writer of the benchmarks' reports.
#include "planning/bench/report.h"

#include "support/catch.h"

using namespace megatron;

TEST_CASE("report: a table is aligned, and its JSON has the same numbers") {
  const Report report = table("fruit", "two kinds",
                              {{"kind", "kind"},
                               {"ms a step", "step_seconds", 1, 1e3},
                               {"share", "share", 0, 100, " %"},
                               {"left", "left"},
                               {"", "bytes"},
                               {"KiB", "", 2, 1.0 / 1024}},
                              {{"apples", 0.0123, 0.5, 7, 1.5, 512}, {"figs", 12.3, 0.0, nullptr, 2.5, 2048}});
  CHECK(report.text ==
        "fruit: two kinds\n"
        "  kind    ms a step  share  left   KiB\n"
        "  apples       12.3   50 %     7  0.50\n"
        "  figs      12300.0               2.00\n");
  CHECK(report.json() == R"({"bytes":1.5,"case":"fruit","kind":"apples","left":7,"share":0.5,"step_seconds":0.0123})"
                         "\n"
                         R"({"bytes":2.5,"case":"fruit","kind":"figs","share":0.0,"step_seconds":12.3})"
                         "\n");
}

TEST_CASE("report: a list has a line for each value that there is") {
  const Report report = list("fruit", "one kind",
                             {{{"device", "device"}, "a CPU"},
                              {{"step", "step_seconds", 1, 1e3, " ms"}, 0.25},
                              {{"not measured", "share"}, nullptr},
                              {{"", "ranks"}, 2},
                              {{"page faults", "", 0, 1, " a step"}, 3.0}});
  CHECK(report.text ==
        "fruit: one kind\n"
        "  device        a CPU\n"
        "  step          250.0 ms\n"
        "  page faults   3 a step\n");
  CHECK(report.json() == "{\"case\":\"fruit\",\"device\":\"a CPU\",\"ranks\":2,\"step_seconds\":0.25}\n");
}

TEST_CASE("report: without a name there is neither a title nor a case") {
  const Report report = table("", "", {{"kind", "kind"}}, {{"figs"}});
  CHECK(report.text == "  kind\n  figs\n");
  CHECK(report.json() == "{\"kind\":\"figs\"}\n");
}

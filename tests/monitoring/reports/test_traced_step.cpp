// The traced step in a report: which trace.json is drawn, when its passes compute, and what is said of one that is not.
#include <fmt/format.h>

#include "monitoring/reports/report.h"
#include "monitoring/reports/runs_on_disk.h"
#include "monitoring/reports/traced_step.h"
#include "support/catch.h"
#include "support/parts_of_text.h"

using namespace megatron;
using namespace megatron::test;

namespace {

// A trace.json, slice by slice.
class TraceOfTest {
 public:
  void add(int process, const std::string& name, double begin, double end) {
    events_ += fmt::format(",\n{{\"ph\":\"X\",\"pid\":{},\"tid\":1,\"ts\":{:.3f},\"dur\":{:.3f},\"name\":\"{}\"}}",
                           process, begin, end - begin, name);
  }
  void write(const std::string& path, const std::string& facts) const {
    write_file(path, fmt::format("{{\"otherData\": {{{}}},\n\"traceEvents\": [{}\n]}}\n", facts, events_));
  }

 private:
  std::string events_ = R"({"ph":"M","name":"process_name","pid":0,"tid":1,"args":{"name":"rank 0"}})";
};

std::string facts_of(int stages, int ranks_per_stage, const std::string& dropped = "0,0") {
  return fmt::format("\"pipeline\": {}, \"ranks_per_stage\": {}, \"dropped_events\": [{}]", stages, ranks_per_stage,
                     dropped);
}

}  // namespace

TEST_CASE("report: the last step of trace.json is drawn with its real times") {
  const TemporaryFolder run;
  make_whole_run(run.path());
  CHECK_FALSE(has(run_report(read_run(run.path())), "really was"));
  // Two stages of one rank each, two steps of two micro-batches; stage 1 waits for its inputs.
  TraceOfTest trace;
  for (const int step : {7, 8}) {
    const double zero = 1000.0 * step;
    for (const int stage : {0, 1}) {
      trace.add(stage, fmt::format("step {}", step), zero, zero + 100);
      trace.add(stage, "forward 0", zero, zero + 20 + 20 * stage);
      if (stage == 1) trace.add(stage, "receive", zero, zero + 20);
      trace.add(stage, "backward 0", zero + 50, zero + 90);
      trace.add(stage, "optimizer", zero + 90, zero + 100);
    }
  }
  const std::string path = run.file("trace.json");
  trace.write(path, facts_of(2, 1));
  const auto traced = read_traced_step(path);
  REQUIRE(traced);
  CHECK(traced->step == 8);
  CHECK(traced->seconds == Approx(100e-6));
  REQUIRE(traced->spans.size() == 2);
  REQUIRE(traced->spans[1].size() == 2);
  CHECK(traced->passes[1][1].kind == Action::Kind::backward);
  CHECK(traced->spans[0][0].start == Approx(0).margin(1e-12));
  CHECK(traced->spans[1][0].start == Approx(20e-6));
  CHECK(traced->spans[1][0].finish == Approx(40e-6));
  // Each stage computes 20 + 40 of 100.
  CHECK(has(run_report(read_run(run.path())), "step 8 as it really was"));
  CHECK(has(run_report(read_run(run.path())), "60.0 %"));
  trace.write(path, facts_of(2, 1, "0,5"));
  CHECK(has(run_report(read_run(run.path())), "has no whole step: events are missing"));
  trace.write(path, facts_of(2, 2));  // then the process 1 is a second rank of stage 0, and stage 1 has no events
  CHECK(has(run_report(read_run(run.path())), "has no whole step"));
  CHECK_FALSE(has(run_report(read_run(run.path())), "really was"));
  for (const char* facts : {"", "\"pipeline\": 2", "\"ranks_per_stage\": 1"}) {
    trace.write(path, facts);
    CHECK(has(run_report(read_run(run.path())), "does not say how many pipeline stages it has"));
  }
  write_file(path, R"({"traceEvents":[{"ph":3]})");
  CHECK(has(run_report(read_run(run.path())), "The traced step is not drawn"));
}

TEST_CASE("report: a pass computes once its memory and inputs have come") {
  const TemporaryFolder folder;
  const std::string path = folder.file("trace.json");
  TraceOfTest trace;
  trace.add(0, "step 3", 0, 1000);
  trace.add(0, "forward 4", 0, 100);
  trace.add(0, "send", 1, 10);
  trace.add(0, "start receive", 10, 11);
  trace.add(0, "receive", 11, 30);
  trace.add(0, "layer 0", 30, 90);
  trace.add(0, "receive", 50, 60);  // in a group within the layer
  trace.add(0, "start send", 95, 96);
  trace.add(0, "send", 96, 99);  // a send after computing is no wait before it
  trace.add(0, "backward 4", 200, 300);
  trace.add(0, "send", 200, 220);
  trace.add(0, "send", 400, 900);  // between passes
  trace.write(path, facts_of(1, 1));
  const auto traced = read_traced_step(path);
  REQUIRE(traced);
  REQUIRE(traced->spans[0].size() == 2);
  CHECK(traced->spans[0][0].start == Approx(30e-6));
  CHECK(traced->spans[0][0].finish == Approx(100e-6));
  CHECK(traced->spans[0][1].start == Approx(220e-6));
  CHECK(traced->spans[0][1].finish == Approx(300e-6));
}

TEST_CASE("report: a traced step may have another layout than the configuration") {
  const TemporaryFolder run;
  make_whole_run(run.path());
  TraceOfTest trace;
  for (const int stage : {0, 1, 2}) {
    const int process = 4 * stage;
    trace.add(process, "step 5", 0, 90);
    for (const int chunk : {0, 1}) {
      const double at = 40.0 * chunk;
      trace.add(process, fmt::format("chunk {}", chunk), at, at + 10);
      trace.add(process, "forward 0", at, at + 10);
      trace.add(process, fmt::format("chunk {}", chunk), at + 10, at + 20);
      trace.add(process, "backward 0", at + 10, at + 20);
      trace.add(process, fmt::format("chunk {}", chunk), at + 20, at + 30);
      trace.add(process, "backward 0", at + 20, at + 30);
      trace.add(process, "weight gradients", at + 20, at + 30);
    }
    trace.add(process + 1, "step 5", 0, 5000);  // another rank of the stage, which is not drawn
  }
  const std::string path = run.file("trace.json");
  trace.write(path, facts_of(3, 4));
  const auto traced = read_traced_step(path);
  REQUIRE(traced);
  CHECK(traced->seconds == Approx(90e-6));
  REQUIRE(traced->passes.size() == 3);
  REQUIRE(traced->passes[2].size() == 6);
  const Action::Kind kinds[] = {Action::Kind::forward, Action::Kind::backward, Action::Kind::backward_weight};
  for (std::size_t i = 0; i < 6; ++i) {
    CHECK(traced->passes[2][i].kind == kinds[i % 3]);
    CHECK(traced->passes[2][i].chunk == (i < 3 ? 0 : 1));
  }
  const std::string html = run_report(read_run(run.path()));
  for (const char* part : {"stage 2<", "0.1<", "gradients of weights", "of the chunk: step 5 as it really was"}) {
    INFO(part);
    CHECK(has(html, part));
  }
  trace.write(path, facts_of(4, 4));
  CHECK(has(run_report(read_run(run.path())), "has no whole step"));
}

TEST_CASE("report: a traced step of more stages than a picture shows says so") {
  const TemporaryFolder run;
  make_whole_run(run.path());
  TraceOfTest trace;
  for (int stage = 0; stage < 17; ++stage) {
    trace.add(stage, "step 5", 0, 90);
    trace.add(stage, "forward 0", 0, 10);
  }
  trace.write(run.file("trace.json"), facts_of(17, 1));
  CHECK(has(run_report(read_run(run.path())), "Step 5 of trace.json is not drawn: 17 stages and 1 pass"));
}

// The recorder of traces: what is written down, when, and what is not.
#include <string>

#include "base/core/timers.h"
#include "base/core/trace_recorder.h"
#include "support/catch.h"

using namespace megatron;

namespace {

using Kind = TraceEvent::Kind;

struct Heard final : Ranges {
  std::string all;
  void begin(const char* name, std::int64_t number) override {
    all += std::string(name) + std::to_string(number) + "(";
  }
  void end() override { all += ")"; }
};

/// A recorder on a clock that counts its readings.
struct Counted {
  std::int64_t time = 0;
  TraceRecorder recorder;
  explicit Counted(std::size_t events) : recorder(events, [this] { return ++time; }) {}
};

}  // namespace

TEST_CASE("trace recorder: ranges inside each other, operations and transfers") {
  Counted counted(10);
  TraceRecorder& recorder = counted.recorder;
  { const Range before(&recorder, "before"); }
  recorder.start();
  {
    const Range layer(&recorder, "layer", 3);                          // 1
    { const TraceRecorder::Operation operation(recorder, "matmul"); }  // 2, 3
    const Transfer sends{
        .what = {Verb::send, 1, 512}, .group = "pipeline", .channel = 4, .operation = 9, .starts = true};
    { const Range transfer(&recorder, sends); }  // 4, 5
  }                                              // 6
  recorder.stop();
  { const Range after(&recorder, "after"); }
  { const TraceRecorder::Operation after(recorder, "add"); }
  const auto events = recorder.events();
  REQUIRE(events.size() == 3);
  CHECK(events[0].name == std::string("layer"));
  CHECK(events[0].number == 3);
  CHECK(events[0].begin == 1);
  CHECK(events[0].end == 6);
  CHECK(events[1].kind == Kind::operation);
  CHECK(events[1].name == std::string("matmul"));
  CHECK(events[1].begin == 2);
  CHECK(events[1].end == 3);
  CHECK(events[2].kind == Kind::start);
  CHECK(events[2].name == std::string("send"));
  CHECK(events[2].group == std::string("pipeline"));
  CHECK(events[2].number == 512);
  CHECK(events[2].operation == 9);
  CHECK(events[2].peer == 1);
  CHECK(events[2].channel == 4);
  CHECK(recorder.dropped() == 0);
  recorder.clear();
  CHECK(recorder.events().empty());
}

TEST_CASE("trace recorder: a loop of communication is one event within one range") {
  Counted counted(10);
  TraceRecorder& recorder = counted.recorder;
  Timers timers([] { return 0.0; });
  timers.set_ranges(&recorder);
  recorder.start();
  const auto progress = [&] {
    const Timers::Scope section(timers, Section::communication);
    const Range range(&recorder, "progress");
  };
  {
    const Range step(&recorder, "step");  // 1
    {
      const Range layer(&recorder, "layer", 0);  // 2
      for (int i = 0; i < 1000; ++i) progress();
    }
    progress();  // not within the layer
    {
      const Range layer(&recorder, "layer", 1);
      progress();
      { const TraceRecorder::Operation operation(recorder, "matmul"); }
      progress();
    }
  }
  std::string names;
  for (const TraceEvent& event : recorder.events()) names += std::string(event.name) + " ";
  CHECK(names == "step layer progress progress layer progress matmul progress ");
  CHECK(recorder.events()[2].begin == 3);
  CHECK(recorder.events()[2].end == 1003);
  CHECK(recorder.events()[1].end == 1004);
  CHECK(recorder.dropped() == 0);
}

TEST_CASE("trace recorder: events without room are counted and the first stay") {
  Counted counted(2);
  TraceRecorder& recorder = counted.recorder;
  recorder.start();
  {
    const Range outer(&recorder, "outer");
    for (int i = 0; i < 3; ++i) const Range inner(&recorder, "inner", i);
    const TraceRecorder::Operation operation(recorder, "add");
  }
  REQUIRE(recorder.events().size() == 2);
  CHECK(recorder.events()[0].end > recorder.events()[1].end);
  CHECK(recorder.events()[1].number == 0);
  CHECK(recorder.dropped() == 3);
  CHECK(recorder.bytes() == 2 * sizeof(TraceEvent));
}

TEST_CASE("trace recorder: deeper than it follows, ranges end in their order") {
  Counted counted(100);
  TraceRecorder& recorder = counted.recorder;
  recorder.start();
  for (int i = 0; i < 50; ++i) recorder.begin("deep", i);
  for (int i = 0; i < 50; ++i) recorder.end();
  { const Range after(&recorder, "after"); }
  REQUIRE(recorder.events().size() == 51);
  CHECK(recorder.events()[0].end > recorder.events()[31].end);
  CHECK(recorder.events()[50].begin > recorder.events()[0].end);
}

TEST_CASE("trace recorder: another profiler gets all and one name per wait") {
  Counted counted(10);
  Heard heard;
  counted.recorder.pass_on_to(&heard);
  Timers timers;
  timers.set_ranges(&counted.recorder);
  { const Timers::Scope outside(timers, Section::data); }
  counted.recorder.start();
  {
    const Timers::Scope forward(timers, Section::forward, 7);
    const Timers::Scope communication(timers, Section::communication);
    const Range wait(timers.ranges(), Transfer{.what = {Verb::receive, 0, 8}});
  }
  CHECK(heard.all == "data-1()forward7(communication-1(receive-1()))");
  REQUIRE(counted.recorder.events().size() == 2);
  CHECK(counted.recorder.events()[0].name == std::string("forward"));
  CHECK(counted.recorder.events()[0].number == 7);
  CHECK(counted.recorder.events()[1].kind == Kind::wait);
}

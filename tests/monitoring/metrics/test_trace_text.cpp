// The trace event format: names of any kind, and files that are complete or not there.
#include <filesystem>
#include <fstream>
#include <sstream>

#include "base/core/error.h"
#include "monitoring/metrics/trace_events.h"
#include "support/catch.h"
#include "support/temporary_folder.h"
#include "support/trace_check.h"

using namespace megatron;
using namespace megatron::test;

namespace {

std::string file_of(const TemporaryFolder& folder, const std::string& events, const nlohmann::json& facts = {}) {
  const std::string path = folder.file("trace.json");
  TraceFile file({"--trace", path, true}, facts.is_null() ? nlohmann::json::object() : facts);
  file.write(events);
  file.publish();
  return contents_of(path);
}

}  // namespace

TEST_CASE("trace text: names are escaped and times are exact to the nanosecond") {
  const TemporaryFolder folder;
  TraceText text;
  text.name_process(3, "rank \"3\"\n");
  text.name_thread({3}, "computing");
  const TraceSlice slice{.begin = 1'234'567, .end = 1'234'568, .name = "a\\b", .category = "phase"};
  text.slice({3}, slice);
  const CheckedTrace trace = TraceCheck::of(file_of(folder, text.text(), {{"steps", 2}}));
  CHECK(trace.processes.at(3) == "rank \"3\"\n");
  CHECK(trace.facts.at("steps") == 2);
  REQUIRE(trace.slices.at(3).size() == 1);
  CHECK(trace.slices.at(3)[0].name == "a\\b");
  CHECK(trace.slices.at(3)[0].begin == 1'234'567);
  CHECK(trace.slices.at(3)[0].end == 1'234'568);
}

TEST_CASE("trace text: events of a recorder, of which some have only one end") {
  using Kind = TraceEvent::Kind;
  const TemporaryFolder folder;
  const std::vector<TraceEvent> events = {
      {.begin = 5,
       .end = 6,
       .name = "send",
       .group = "pipeline",
       .number = 8,
       .operation = 1,
       .peer = 1,
       .channel = 0,
       .kind = Kind::wait},  // started before
      {.begin = 10, .end = 90, .name = "forward", .number = 2},
      {.begin = 11,
       .end = 12,
       .name = "receive",
       .group = "pipeline",
       .number = 8,
       .operation = 2,
       .peer = 1,
       .channel = 0,
       .kind = Kind::start},
      {.begin = 12,
       .end = 20,
       .name = "receive",
       .group = "pipeline",
       .number = 8,
       .operation = 2,
       .peer = 1,
       .kind = Kind::wait},
      {.begin = 20, .end = 40, .name = "matmul", .kind = Kind::operation},
      {.begin = 40,
       .end = 40,
       .name = "send",
       .group = "pipeline",
       .number = 8,
       .operation = 3,
       .peer = 1,
       .channel = 0,
       .kind = Kind::start},  // waited for later
  };
  std::vector<std::string> messages;
  visit_messages(events, [&](const TraceEvent& event, bool sends) {
    messages.push_back(fmt::format("{} {}", sends ? "to" : "from", event.channel));
  });
  CHECK(messages == std::vector<std::string>{"from 0", "to 0"});
  TraceText text, all;
  text.name_process(0, "one");
  text.name_thread({0}, "computing");
  std::string written;
  const TracedRank rank{.process = 0,
                        .align = [](std::int64_t time) { return time + 100; },
                        .arrow = [](const TraceEvent&, bool) { return -1; }};
  add_events(text, events, rank, [&] {
    written += text.text();
    text.clear();
  });
  const CheckedTrace trace = TraceCheck::of(file_of(folder, written));
  CHECK(trace.count(0, "forward") == 1);
  CHECK(trace.within(0, "matmul", "forward 2"));
  CHECK(trace.count(0, "start send") == 1);
  CHECK(trace.under_way == 1);
  CHECK(trace.arrows.empty());
  CHECK(trace.slices.at(0)[1].begin == 110);
}

TEST_CASE("trace text: an arrow points to the slice where its message has arrived") {
  const TemporaryFolder folder;
  TraceText text;
  for (const int process : {0, 1}) {
    text.name_process(process, "one");
    text.name_thread({process}, "computing");
  }
  text.slice({0}, {.begin = 50, .end = 60, .name = "start send", .category = "communication"});
  text.arrow_leaves({0}, 50, 7);
  text.slice({1}, {.begin = 10, .end = 70, .name = "receive", .category = "communication"});
  text.arrow_arrives({1}, 69, 7);
  text.slice({1}, {.begin = 70, .end = 90, .name = "layer 3", .category = "layer"});
  const CheckedTrace trace = TraceCheck::of(file_of(folder, text.text()));
  CHECK(trace.arrows == std::vector<std::pair<std::int64_t, std::int64_t>>{{0, 1}});
  CHECK(trace.arrives_in == std::set<std::string>{"layer"});
  std::string around = text.text();
  around.insert(around.find("\"ph\":\"f\",") + 9, "\"bp\":\"e\",");  // to the slice that holds its end: "receive"
  CHECK_THROWS_AS(TraceCheck::of(file_of(folder, around)), std::runtime_error);
}

TEST_CASE("trace text: the checks of these tests find what is wrong") {
  const TemporaryFolder folder;
  const auto broken = [&](const auto& change) {
    TraceText text;
    text.name_process(0, "one");
    text.name_thread({0}, "computing");
    text.slice({0}, {.begin = 10, .end = 50, .name = "outer", .category = "phase"});
    change(text);
    CHECK_THROWS_AS(TraceCheck::of(file_of(folder, text.text())), std::runtime_error);
  };
  broken([](TraceText& t) { t.slice({0}, {.begin = 20, .end = 60, .name = "longer", .category = "phase"}); });
  broken([](TraceText& t) { t.slice({0}, {.begin = 5, .end = 6, .name = "earlier", .category = "phase"}); });
  broken([](TraceText& t) { t.arrow_leaves({0}, 10, 1); });
  broken([](TraceText& t) { t.arrow_arrives({0}, 10, 1); });
  broken([](TraceText& t) {
    t.arrow_arrives({0}, 20, 1);
    t.arrow_leaves({0}, 30, 1);
  });
  broken([](TraceText& t) {
    t.arrow_leaves({0}, 20, 1);
    t.arrow_arrives({0}, 30, 1);
  });
  broken([](TraceText& t) {
    t.arrow_leaves({0}, 60, 1);
    t.arrow_arrives({0}, 70, 1);
  });
  broken([](TraceText& t) { t.slice({1}, {.begin = 20, .end = 60, .name = "nameless", .category = "phase"}); });
  broken(
      [](TraceText& t) { t.under_way_begins(0, {.begin = 20, .end = 60, .name = "sum", .category = "under way"}, 1); });
}

TEST_CASE("trace file: it is complete, or what was there stays") {
  const TemporaryFolder folder;
  const std::string path = folder.file("trace.json");
  {
    std::ofstream(path) << "old";
    TraceFile file({"--trace", path, true}, nlohmann::json::object());
    file.write(",\n{}");
  }
  CHECK(contents_of(path) == "old");
  CHECK(std::distance(std::filesystem::directory_iterator(folder.path()), {}) == 1);
  CHECK_THROWS_AS(TraceFile({"--trace", folder.file("nowhere/trace.json"), true}, nlohmann::json::object()), Error);
}

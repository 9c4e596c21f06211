// Tests of the overlap benchmark: its step is the training step, with operations in flight or none.
#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>

#include "bench/benchmark_overlap.h"
#include "comm/communicator_decorator.h"
#include "comm/thread_communicator.h"
#include "support/catch.h"

using namespace megatron;

namespace {

/// Records for every operation whether it was waited for before anything else was started or moved along.
struct Record {
  std::vector<bool> at_once;
  std::vector<std::size_t> open;

  std::size_t start() {
    interrupt();
    at_once.push_back(true);
    open.push_back(at_once.size() - 1);
    return open.back();
  }
  void interrupt() {
    for (const std::size_t operation : open) at_once[operation] = false;
  }
};

class RecordingCommunicator final : public CommunicatorDecorator {
 public:
  RecordingCommunicator(Communicator& inner, Record& record) : CommunicatorDecorator(inner), record_(record) {}
  RecordingCommunicator(std::unique_ptr<Communicator> inner, Record& record)
      : CommunicatorDecorator(std::move(inner)), record_(record) {}

 protected:
  std::unique_ptr<Communicator> around(std::unique_ptr<Communicator> inner) const override {
    return std::make_unique<RecordingCommunicator>(std::move(inner), record_);
  }
  std::uint64_t keep(Pending pending) override {
    const std::uint64_t ticket = CommunicatorDecorator::keep(std::move(pending));
    operations_[ticket] = record_.start();
    return ticket;
  }
  void finish(std::uint64_t ticket) override {
    CommunicatorDecorator::finish(ticket);
    std::erase(record_.open, operations_.at(ticket));
  }
  void do_progress() override { record_.interrupt(); }

 private:
  Record& record_;
  std::map<std::uint64_t, std::size_t> operations_;
};

std::vector<OverlapCase> tiny_cases() {
  std::vector<OverlapCase> cases = overlap_cases();
  for (OverlapCase& each : cases) {
    ModelConfig& model = each.config.model;
    model.layers = 2;
    model.hidden_size = 64;
    model.attention_heads = model.query_groups = 4;
    model.ffn_hidden_size = 256;
    model.sequence_length = model.max_position_embeddings = 16;
    model.vocab_size = 200;
  }
  return cases;
}

}  // namespace

TEST_CASE("overlap benchmark: each layout of two ranks is timed with and without") {
  const std::vector<OverlapCase> cases = tiny_cases();
  std::vector<OverlapTimes> both[2];
  run_as_threads(
      2, [&](Communicator& world) { both[world.rank()] = measure_overlap(cases, {.rounds = 2, .steps = 2}, world); });
  const std::vector<OverlapTimes>& times = both[0];
  REQUIRE(times.size() == 4);
  const std::string table = describe(times);
  for (std::size_t i = 0; i < times.size(); ++i) {
    CAPTURE(times[i].layout);
    CHECK(times[i].layout == cases[i].layout);
    CHECK(times[i].without > 0);
    CHECK(times[i].with > 0);
    CHECK(times[i].with == both[1][i].with);
    CHECK(times[i].ratio > 0);
    CHECK((times[i].over_plain > 0) == (cases[i].config.parallel.data == 2));
    CHECK(table.find(times[i].layout) != std::string::npos);
    const nlohmann::json json = nlohmann::json::parse(to_json(times[i]));
    CHECK(json.at("step_seconds_with") == times[i].with);
    CHECK(json.contains("over_plain") == (times[i].over_plain > 0));
  }
  CHECK(times[0].over_plain == times[0].ratio);
  CHECK_THROWS_AS(
      run_as_threads(1, [&](Communicator& world) { measure_overlap(cases, {.rounds = 1, .steps = 1}, world); }), Error);
}

TEST_CASE("overlap benchmark: without overlap each operation is awaited at once") {
  for (const OverlapCase& each : tiny_cases()) {
    if (each.by_key) continue;  // the key's own test is elsewhere
    CAPTURE(each.layout);
    Record records[2];
    run_as_threads(2, [&](Communicator& threads) {
      RecordingCommunicator world(threads, records[threads.rank()]);
      measure_overlap({each}, {.rounds = 1, .steps = 1}, world);
    });
    const std::vector<bool>& at_once = records[0].at_once;
    // To warm up without, with; then with, without.
    REQUIRE(at_once.size() % 4 == 0);
    const auto quarter = static_cast<std::ptrdiff_t>(at_once.size() / 4);
    const auto all_at_once = [&](int i) {
      return std::all_of(at_once.begin() + i * quarter, at_once.begin() + (i + 1) * quarter,
                         [](bool one) { return one; });
    };
    CHECK(all_at_once(0));
    CHECK_FALSE(all_at_once(1));
    CHECK_FALSE(all_at_once(2));
    CHECK(all_at_once(3));
  }
}

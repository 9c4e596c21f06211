// Tests of the overlap benchmark: its step is the training step, with operations in flight or none.
#include <algorithm>
#include <map>

#include "distributed/comm/communicator_decorator.h"
#include "distributed/comm/thread_communicator.h"
#include "planning/bench/comparisons.h"
#include "support/catch.h"
#include "support/tiny_model.h"

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

std::vector<Case> tiny_cases() {
  std::vector<Case> cases = overlap_cases();
  for (Case& each : cases) test::cut_down(each.config.model, 16);
  return cases;
}

}  // namespace

TEST_CASE("overlap benchmark: each layout of two ranks is timed with and without") {
  const std::vector<Case> cases = tiny_cases();
  Report both[2];  // a single round, so that medians are the values themselves
  run_as_threads(
      2, [&](Communicator& world) { both[world.rank()] = measure_overlap(cases, {.rounds = 1, .steps = 2}, world); });
  CHECK(both[0].rows == both[1].rows);
  REQUIRE(both[0].rows.size() == 4);
  const auto seconds = [&](std::size_t i, const char* how) { return both[0].rows[i].at(how).get<double>(); };
  for (std::size_t i = 0; i < cases.size(); ++i) {
    const nlohmann::json& row = both[0].rows[i];
    CAPTURE(row.dump());
    CHECK(row.at("case") == "overlap");
    CHECK(row.at("layout") == cases[i].name);
    const double with = seconds(i, "step_seconds_with");
    CHECK(row.at("ratio").get<double>() == Approx(with / seconds(i, "step_seconds_without")));
    const bool data = cases[i].config.parallel.data == 2;
    REQUIRE(row.contains("over_plain") == data);
    if (data) CHECK(row.at("over_plain").get<double>() == Approx(with / seconds(0, "step_seconds_without")));
    CHECK_THAT(both[0].text, Contains(cases[i].name));
  }
  CHECK_THROWS_AS(
      run_as_threads(1, [&](Communicator& world) { measure_overlap(cases, {.rounds = 1, .steps = 1}, world); }), Error);
}

TEST_CASE("overlap benchmark: without overlap each operation is awaited at once") {
  for (const Case& each : tiny_cases()) {
    const bool by_key = each.config.parallel.data > 1 && !each.config.optimizer.shares().state;
    if (by_key) continue;  // the key's own test is elsewhere
    CAPTURE(each.name);
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

#include <algorithm>
#include <catch2/catch.hpp>
#include <map>
#include <set>
#include <string>

#include "base/error.h"
#include "pipeline/schedule.h"

using namespace megatron;
using Kind = Action::Kind;

namespace {

/// Each micro-batch exactly once forward and (unless forward_only) once backward, the forward first, in one slot that
/// nobody else holds in between.
void check_list(const std::vector<Action>& list, int micro_batches) {
  std::map<int, int> holder;  // slot -> micro-batch
  std::set<int> forwards, backwards;
  for (const Action& action : list) {
    REQUIRE(action.micro_batch >= 0);
    REQUIRE(action.micro_batch < micro_batches);
    REQUIRE(action.chunk == 0);
    if (action.kind == Kind::forward) {
      REQUIRE(forwards.insert(action.micro_batch).second);
      REQUIRE(holder.emplace(action.slot, action.micro_batch).second);
    } else {
      REQUIRE(action.kind == Kind::backward);
      REQUIRE(forwards.count(action.micro_batch) == 1);
      REQUIRE(backwards.insert(action.micro_batch).second);
      REQUIRE(holder.at(action.slot) == action.micro_batch);
      holder.erase(action.slot);
    }
  }
  REQUIRE(static_cast<int>(forwards.size()) == micro_batches);
  REQUIRE(static_cast<int>(backwards.size()) == micro_batches);
  REQUIRE(holder.empty());
}

int leading_forwards(const std::vector<Action>& list) {
  return static_cast<int>(
      std::find_if(list.begin(), list.end(), [](const Action& a) { return a.kind != Kind::forward; }) - list.begin());
}

std::vector<int> order_of(const std::vector<Action>& list, Kind kind) {
  std::vector<int> order;
  for (const Action& action : list) {
    if (action.kind == kind) order.push_back(action.micro_batch);
  }
  return order;
}

}  // namespace

TEST_CASE("every training schedule does every piece once and holds the slots it promises") {
  for (int stages = 1; stages <= 8; ++stages) {
    for (int micro_batches = 1; micro_batches <= 16; ++micro_batches) {
      for (int stage = 0; stage < stages; ++stage) {
        CAPTURE(stages, micro_batches, stage);
        const auto all_first = gpipe(stage, stages, micro_batches);
        check_list(all_first, micro_batches);
        CHECK(slot_count(all_first) == micro_batches);
        CHECK(leading_forwards(all_first) == micro_batches);

        const auto alternating = one_f_one_b(stage, stages, micro_batches);
        check_list(alternating, micro_batches);
        CHECK(slot_count(alternating) == std::min(stages - stage, micro_batches));

        // Both accumulate gradients in the same order, which is what makes them bit-identical to each other.
        CHECK(order_of(all_first, Kind::backward) == order_of(alternating, Kind::backward));
      }
    }
  }
}

TEST_CASE("1F1B with 4 stages and 8 micro-batches warms up with 3, 2, 1, 0 and holds 4, 3, 2, 1") {
  for (int stage = 0; stage < 4; ++stage) {
    const auto list = one_f_one_b(stage, 4, 8);
    CHECK(leading_forwards(list) == 3 - stage + 1);  // the warm-up's and the first steady one
    CHECK(slot_count(list) == 4 - stage);
    CHECK(list[3 - stage + 1] == Action{.kind = Kind::backward, .micro_batch = 0, .chunk = 0, .slot = 0});
  }
}

TEST_CASE("a forward-only list uses two slots in turn") {
  const auto list = forward_only(1, 3, 5);
  REQUIRE(list.size() == 5);
  for (int i = 0; i < 5; ++i) {
    CHECK(list[i] == Action{.kind = Kind::forward, .micro_batch = i, .chunk = 0, .slot = i % 2});
  }
  CHECK(slot_count(forward_only(0, 1, 1)) == 1);
}

TEST_CASE("slots are freed out of order, by the weight gradient where a backward is cut in two") {
  std::vector<Action> list = {
      {.kind = Kind::forward, .micro_batch = 0},         {.kind = Kind::forward, .micro_batch = 1},
      {.kind = Kind::backward_input, .micro_batch = 0},  {.kind = Kind::forward, .micro_batch = 2},
      {.kind = Kind::backward, .micro_batch = 1},        {.kind = Kind::forward, .micro_batch = 3},
      {.kind = Kind::backward_weight, .micro_batch = 0}, {.kind = Kind::forward, .micro_batch = 0, .chunk = 1},
  };
  assign_slots(list);
  std::vector<int> slots;
  for (const Action& action : list) slots.push_back(action.slot);
  CHECK(slots == std::vector<int>{0, 1, 0, 2, 1, 1, 0, 0});
  CHECK(slot_count(list) == 3);
  CHECK(slot_count({}) == 0);

  std::vector<Action> backward_first = {{.kind = Kind::backward, .micro_batch = 0}};
  CHECK_THROWS_AS(assign_slots(backward_first), Error);
  std::vector<Action> twice = {{.kind = Kind::forward}, {.kind = Kind::forward}};
  CHECK_THROWS_AS(assign_slots(twice), Error);
}

TEST_CASE("schedules are found by the input file's name, others refused by name") {
  CHECK(make_schedule("1f1b", 1, 4, 6) == one_f_one_b(1, 4, 6));
  CHECK(make_schedule("gpipe", 1, 4, 6) == gpipe(1, 4, 6));
  CHECK(make_schedules("1f1b", 4, 6).at(3) == one_f_one_b(3, 4, 6));
  for (const std::string name : {"interleaved", "zero_bubble", "1F1B", ""}) {
    try {
      make_schedule(name, 0, 2, 4);
      FAIL("accepted " << name);
    } catch (const Error& error) {
      CHECK(error.kind() == ErrorKind::configuration);
      CHECK(std::string(error.what()).find("\"" + name + "\"") != std::string::npos);
    }
  }
  CHECK_THROWS_AS(one_f_one_b(4, 4, 1), Error);
  CHECK_THROWS_AS(gpipe(0, 1, 0), Error);
}

#include <algorithm>
#include <map>
#include <set>
#include <string>

#include "base/core/error.h"
#include "config/schema/schedules.h"
#include "support/catch.h"
#include "training/pipeline/schedule.h"

using namespace megatron;
using Kind = Action::Kind;

namespace {

/// Each unit exactly once forward and once backward (whole, or the input's half and then the weights'), the forward
/// first, in one slot that is not reused in between.
void check_list(const std::vector<Action>& list, int micro_batches, int chunks = 1) {
  using ScheduleUnit = std::pair<int, int>;
  std::map<int, ScheduleUnit> holder;  // slot -> who
  std::set<ScheduleUnit> forwards, inputs, done;
  for (const Action& action : list) {
    const ScheduleUnit unit{action.micro_batch, action.chunk};
    REQUIRE(action.micro_batch >= 0);
    REQUIRE(action.micro_batch < micro_batches);
    REQUIRE(action.chunk >= 0);
    REQUIRE(action.chunk < chunks);
    if (action.kind == Kind::forward) {
      REQUIRE(forwards.insert(unit).second);
      REQUIRE(holder.emplace(action.slot, unit).second);
      continue;
    }
    REQUIRE(forwards.count(unit) == 1);
    REQUIRE(holder.at(action.slot) == unit);
    if (action.kind != Kind::backward_weight) REQUIRE(inputs.insert(unit).second);
    if (action.kind == Kind::backward_input) continue;
    REQUIRE(inputs.count(unit) == 1);
    REQUIRE(done.insert(unit).second);
    holder.erase(action.slot);
  }
  REQUIRE(static_cast<int>(forwards.size()) == micro_batches * chunks);
  REQUIRE(static_cast<int>(done.size()) == micro_batches * chunks);
  REQUIRE(holder.empty());
}

int leading_forwards(const std::vector<Action>& list) {
  return static_cast<int>(
      std::find_if(list.begin(), list.end(), [](const Action& a) { return a.kind != Kind::forward; }) - list.begin());
}

std::vector<int> order_of(const std::vector<Action>& list, Kind kind, int chunk = 0) {
  std::vector<int> order;
  for (const Action& action : list) {
    if (action.kind == kind && action.chunk == chunk) order.push_back(action.micro_batch);
  }
  return order;
}

/// The chunks of a list's forwards, or backwards, as digits.
std::string chunks_of(const std::vector<Action>& list, Kind kind) {
  std::string chunks;
  for (const Action& action : list) {
    if (action.kind == kind) chunks += std::to_string(action.chunk);
  }
  return chunks;
}

}  // namespace

TEST_CASE("schedules: every training schedule does each unit once in its slots") {
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
        const std::vector<int> order = order_of(all_first, Kind::backward);
        CHECK(order == order_of(alternating, Kind::backward));

        const auto cut = zero_bubble(stage, stages, micro_batches);
        check_list(cut, micro_batches);
        CHECK(slot_count(cut) <= std::min(stages, micro_batches));  // as 1F1B's first stage
        CHECK(leading_forwards(cut) == leading_forwards(alternating));
        CHECK(order == order_of(cut, Kind::backward_input));
        CHECK(order == order_of(cut, Kind::backward_weight));
        CHECK(order_of(cut, Kind::backward).empty());
      }
    }
  }
}

TEST_CASE("interleaved: every unit is done once in the promised slots") {
  for (int stages = 2; stages <= 8; ++stages) {
    for (int chunks = 1; chunks <= 4; ++chunks) {
      for (int micro_batches = 1; micro_batches <= 16; ++micro_batches) {
        const int groups = std::max(1, micro_batches / stages), group = (micro_batches + groups - 1) / groups;
        for (int stage = 0; stage < stages; ++stage) {
          CAPTURE(stages, chunks, micro_batches, stage);
          const auto list = interleaved(stage, stages, micro_batches, chunks);
          check_list(list, micro_batches, chunks);
          const int warm_up = 2 * (stages - stage - 1) + (chunks - 1) * group;
          const int promised = std::min(warm_up + 1, micro_batches * chunks);
          CHECK(leading_forwards(list) == promised);
          // The last stage keeps slots apart for the model's end.
          const int slots = slot_count(list);
          if (stage < stages - 1) CHECK(slots == promised);
          if (stage == stages - 1) CHECK(slots >= promised);
          if (stage == stages - 1) CHECK(slots <= promised + group - 1 + (micro_batches >= stages ? 1 : 0));
          // Micro-batches in order through each chunk: gradients add up as in any other schedule.
          for (int chunk = 0; chunk < chunks; ++chunk) {
            const std::vector<int> order = order_of(list, Kind::backward, chunk);
            CHECK(std::is_sorted(order.begin(), order.end()));
          }
        }
      }
    }
  }
}

TEST_CASE("interleaved: 4 stages and 2 chunks give Megatron-LM's order") {
  for (int stage = 0; stage < 4; ++stage) {
    const auto list = interleaved(stage, 4, 8, 2);
    CHECK(leading_forwards(list) == 10 - 2 * stage + 1);  // the warm-up's and the first steady one
    CHECK(chunks_of(list, Kind::forward) == "0000111100001111");
    CHECK(chunks_of(list, Kind::backward) == "1111000011110000");
    CHECK(order_of(list, Kind::forward) == std::vector<int>{0, 1, 2, 3, 4, 5, 6, 7});
  }
  CHECK(chunks_of(interleaved(1, 2, 5, 2), Kind::forward) == "0001110011");
  CHECK(interleaved(1, 4, 6, 1) != one_f_one_b(1, 4, 6));  // twice the warm-up, for what it is worth
}

TEST_CASE("slots: the end of the model shares none with other chunks") {
  for (int micro_batches = 1; micro_batches <= 16; ++micro_batches) {
    for (const auto& list : {interleaved(3, 4, micro_batches, 3), forward_only(3, 4, micro_batches, 3)}) {
      std::set<int> ends, others;
      for (const Action& action : list) (action.chunk == 2 ? ends : others).insert(action.slot);
      CHECK(*ends.rbegin() < *others.begin());
      CHECK(*others.begin() == static_cast<int>(ends.size()));
    }
  }
}

TEST_CASE("1F1B: 4 stages warm up with 3 2 1 0 forwards and hold 4 3 2 1 slots") {
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
  CHECK(slot_count(forward_only(2, 3, 5)) == 1);  // the end of the model sends nothing
}

TEST_CASE("a forward-only list never needs more slots than training") {
  for (const ScheduleFacts& schedule : kSchedules) {
    const std::string name(schedule.name);
    for (int stages = schedule.chunks ? 2 : 1; stages <= 8; ++stages) {
      for (int chunks = 1; chunks <= (schedule.chunks ? 4 : 1); ++chunks) {
        for (int micro_batches = 1; micro_batches <= 16; ++micro_batches) {
          for (int stage = 0; stage < stages; ++stage) {
            CAPTURE(name, stages, chunks, micro_batches, stage);
            CHECK(slot_count(forward_only(stage, stages, micro_batches, chunks)) <=
                  slot_count(make_schedule(name, stage, stages, micro_batches, chunks)));
          }
        }
      }
    }
  }
}

TEST_CASE("slots: freed out of order by the weight gradient of a cut backward") {
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
  CHECK(make_schedule("zero_bubble", 1, 4, 6) == zero_bubble(1, 4, 6));
  CHECK(make_schedule("interleaved", 1, 4, 6, 3) == interleaved(1, 4, 6, 3));
  CHECK(make_schedules("1f1b", 4, 6).at(3) == one_f_one_b(3, 4, 6));
  CHECK_THROWS_AS(make_schedule("1f1b", 0, 2, 4, 2), Error);
  CHECK_THROWS_AS(interleaved(0, 1, 4, 2), Error);
  for (const std::string name : {"interlaced", "zero bubble", "1F1B", ""}) {
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

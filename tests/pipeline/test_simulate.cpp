#include <algorithm>
#include <catch2/catch.hpp>
#include <string>

#include "pipeline/simulate.h"

using namespace megatron;
using Kind = Action::Kind;

namespace {

std::vector<std::vector<Action>> evaluation_lists(int stages, int micro_batches) {
  std::vector<std::vector<Action>> lists;
  for (int stage = 0; stage < stages; ++stage) lists.push_back(forward_only(stage, stages, micro_batches));
  return lists;
}

template <class Check>
void for_all_sizes(Check check) {
  for (int stages = 1; stages <= 8; ++stages) {
    for (int micro_batches = 1; micro_batches <= 16; ++micro_batches) {
      CAPTURE(stages, micro_batches);
      check(stages, micro_batches);
    }
  }
}

}  // namespace

TEST_CASE("GPipe and 1F1B have the published bubble and hold what they promise, for all sizes") {
  for_all_sizes([](int p, int m) {
    for (const std::string name : {"gpipe", "1f1b"}) {
      for (const SendMode mode : {SendMode::buffered, SendMode::nonblocking}) {
        for (const double backward : {1.0, 2.0}) {
          for (const bool ahead : {false, true}) {
            CAPTURE(name, static_cast<int>(mode), backward, ahead);
            const auto result = simulate(make_schedules(name, p, m),
                                         {.backward_seconds = backward, .sends = mode, .receive_ahead = ahead});
            REQUIRE_FALSE(result.deadlock);
            CHECK(result.explanation.empty());
            CHECK(result.makespan == Approx((m + p - 1) * (1 + backward)));
            CHECK(result.bubble_fraction == Approx((p - 1.0) / (m + p - 1.0)).margin(1e-12));
            for (int stage = 0; stage < p; ++stage) {
              CHECK(result.slots_in_flight.at(stage) == (name == "gpipe" ? m : std::min(p - stage, m)));
            }
          }
        }
      }
    }
  });
}

TEST_CASE("no schedule deadlocks when every send waits for its receiver, given receives posted ahead") {
  for_all_sizes([](int p, int m) {
    for (const std::string name : {"gpipe", "1f1b"}) {
      const auto result = simulate(make_schedules(name, p, m), {.sends = SendMode::synchronous, .receive_ahead = true});
      CAPTURE(name, result.explanation);
      CHECK_FALSE(result.deadlock);
    }
    CHECK_FALSE(simulate(evaluation_lists(p, m), {.sends = SendMode::synchronous, .receive_ahead = true}).deadlock);
  });
}

TEST_CASE("evaluation with two slots runs without stalls") {
  for_all_sizes([](int p, int m) {
    for (const SendMode mode : {SendMode::buffered, SendMode::nonblocking}) {
      for (const bool ahead : {false, true}) {
        const auto result = simulate(evaluation_lists(p, m), {.sends = mode, .receive_ahead = ahead});
        REQUIRE_FALSE(result.deadlock);
        CHECK(result.makespan == Approx(m + p - 1));
      }
    }
  });
}

TEST_CASE("synchronous sends without receives posted ahead are the classic 1F1B deadlock, and it is found") {
  const auto lists = make_schedules("1f1b", 2, 4);
  const auto result = simulate(lists, {.sends = SendMode::synchronous, .receive_ahead = false});
  REQUIRE(result.deadlock);
  CHECK(result.explanation.find("stage 0") != std::string::npos);
  CHECK(result.explanation.find("stage 1") != std::string::npos);
  CHECK(result.explanation.find("for its send to be received") != std::string::npos);
  CHECK_FALSE(simulate(lists, {.sends = SendMode::nonblocking, .receive_ahead = false}).deadlock);
}

TEST_CASE("mismatched lists deadlock and the explanation names the stage and what it waits for") {
  auto lists = make_schedules("gpipe", 2, 3);
  std::erase_if(lists[0], [](const Action& a) { return a.kind == Kind::forward && a.micro_batch == 2; });
  std::erase_if(lists[0], [](const Action& a) { return a.kind == Kind::backward && a.micro_batch == 2; });
  const auto result = simulate(lists);
  REQUIRE(result.deadlock);
  CHECK(result.explanation.find("stage 1, action 2 (forward of micro-batch 2, chunk 0) waits for its input") !=
        std::string::npos);
}

TEST_CASE("a slot is not reused before its sends were received") {
  // Stage 1 takes its micro-batches in reverse order, so stage 0's single slot can never be given free.
  std::vector<std::vector<Action>> lists = {{{.micro_batch = 0}, {.micro_batch = 1}, {.micro_batch = 2}},
                                            {{.micro_batch = 2}, {.micro_batch = 1}, {.micro_batch = 0}}};
  CHECK(simulate(lists, {.sends = SendMode::nonblocking}).deadlock);
  CHECK_FALSE(simulate(lists, {.sends = SendMode::buffered}).deadlock);
  for (auto& list : lists) {
    for (auto& action : list) action.slot = action.micro_batch;
  }
  CHECK_FALSE(simulate(lists, {.sends = SendMode::nonblocking}).deadlock);
}

TEST_CASE("chunks follow each other around the ring and a cut backward frees the next stage early") {
  // One micro-batch through 2 stages × 2 chunks: four forwards in a row, nothing overlaps.
  const std::vector<std::vector<Action>> ring = {{{.chunk = 0}, {.chunk = 1, .slot = 1}},
                                                 {{.chunk = 0}, {.chunk = 1, .slot = 1}}};
  CHECK(simulate(ring).makespan == Approx(4));

  std::vector<std::vector<Action>> cut(2);
  for (auto& list : cut) {
    list = {{.kind = Kind::forward}, {.kind = Kind::backward_input}, {.kind = Kind::backward_weight}};
  }
  CHECK(simulate(cut).makespan ==
        Approx(2 + 1 + 2));  // against 2 + 2 + 2: stage 0 starts when the input's part is done
}

TEST_CASE("the drawing shows stages × time and is cut to the width") {
  CHECK(draw_schedules(make_schedules("1f1b", 2, 3)) ==
        "stage   0  F0 F1 .  .  B0--- F2 B1--- .  B2--- \n"
        "stage   1  .  F0 B0--- F1 B1--- F2 B2--- .  .  \n");
  const std::string cut = draw_schedules(make_schedules("gpipe", 4, 64), 80);
  CHECK(cut.find("...\n") != std::string::npos);
  CHECK(cut.find("of 201 columns") != std::string::npos);
  std::size_t begin = 0;
  for (std::size_t end; (end = cut.find('\n', begin)) != std::string::npos; begin = end + 1) CHECK(end - begin <= 80);
}

#include <algorithm>
#include <string>

#include "config/schema/schedules.h"
#include "support/catch.h"
#include "training/pipeline/simulate.h"

using namespace megatron;
using Kind = Action::Kind;

namespace {

std::vector<std::vector<Action>> evaluation_lists(int stages, int micro_batches, int chunks = 1) {
  std::vector<std::vector<Action>> lists;
  for (int stage = 0; stage < stages; ++stage) lists.push_back(forward_only(stage, stages, micro_batches, chunks));
  return lists;
}

constexpr SendMode kModes[] = {SendMode::buffered, SendMode::nonblocking};

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

TEST_CASE("simulation: GPipe and 1F1B have the published bubble at all sizes") {
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

TEST_CASE("simulation: interleaved has the published bubble and no deadlock") {
  for_all_sizes([](int p, int m) {
    for (int v = 1; p > 1 && v <= 4; ++v) {
      for (const SendMode mode : kModes) {
        for (const double backward : {1.0, 2.0}) {
          for (const bool ahead : {false, true}) {
            const auto lists = make_schedules("interleaved", p, m, v);
            const auto result = simulate(lists, {.backward_seconds = backward,
                                                 .sends = mode,
                                                 .receive_ahead = ahead,
                                                 .gradient_buffers = gradient_buffers(p, m, v)});
            CAPTURE(v, static_cast<int>(mode), backward, ahead, result.explanation);
            REQUIRE_FALSE(result.deadlock);
            CHECK_FALSE(simulate(lists, {.sends = mode, .receive_ahead = ahead}).deadlock);  // but perhaps a stall
            if (m < p) continue;
            CHECK(result.makespan == Approx((v * m + p - 1) * (1 + backward)));
            CHECK(result.bubble_fraction == Approx(*analytic_bubble("interleaved", p, m, v)).margin(1e-12));
          }
        }
      }
    }
  });
}

TEST_CASE("simulation: a smaller last group of micro-batches would deadlock") {
  // The lists as Megatron-LM's rules would make them, were it not for its rule that stages divide micro-batches.
  std::vector<std::vector<Action>> lists;
  for (int stage = 0; stage < 4; ++stage) {
    std::vector<Action> forwards, backwards, list;
    for (const int first : {0, 4}) {
      for (int chunk = 0; chunk < 3; ++chunk) {
        for (int i = first; i < std::min(first + 4, 5); ++i) {
          forwards.push_back({.kind = Kind::forward, .micro_batch = i, .chunk = chunk});
          backwards.push_back({.kind = Kind::backward, .micro_batch = i, .chunk = 2 - chunk});
        }
      }
    }
    const std::size_t warm_up = std::min<std::size_t>(2 * (4 - stage - 1) + 2 * 4, forwards.size());
    for (std::size_t i = 0; i < forwards.size() + warm_up; ++i) {
      if (i < forwards.size()) list.push_back(forwards[i]);
      if (i >= warm_up) list.push_back(backwards[i - warm_up]);
    }
    assign_slots(list);
    lists.push_back(list);
  }
  CHECK(simulate(lists, {.sends = SendMode::buffered}).deadlock);
}

TEST_CASE("simulation: zero bubble leaves a third of 1F1B's bubble") {
  for_all_sizes([](int p, int m) {
    const auto one = simulate(make_schedules("1f1b", p, m));
    for (const SendMode mode : kModes) {
      for (const bool ahead : {false, true}) {
        // F = B = W: a whole backward takes two.
        const auto lists = make_schedules("zero_bubble", p, m);
        const auto result = simulate(lists, {.sends = mode, .receive_ahead = ahead});
        CAPTURE(static_cast<int>(mode), ahead, result.explanation);
        REQUIRE_FALSE(result.deadlock);
        for (const int slots : result.slots_in_flight) CHECK(slots <= std::min(p, m));
        CHECK(result.makespan <= one.makespan);
        if (m < p) continue;
        CHECK(result.makespan == Approx(3 * m + p - 1));
        CHECK(result.bubble_fraction == Approx(*analytic_bubble("zero_bubble", p, m)).margin(1e-12));
        const double idle = result.makespan - 3 * m, idle_of_one = one.makespan - 3 * m;
        CHECK(idle <= idle_of_one / 3 + 1e-9);
      }
    }
    // Other shares must not deadlock either, nor take longer than 1F1B.
    for (const double share : {0.3, 0.7}) {
      const auto result = simulate(make_schedules("zero_bubble", p, m), {.input_share = share});
      CHECK_FALSE(result.deadlock);
      CHECK(result.makespan <= one.makespan + 1e-9);
    }
  });
}

TEST_CASE("simulation: with receives ahead no schedule without chunks deadlocks") {
  for_all_sizes([](int p, int m) {
    const SimulationOptions options{.sends = SendMode::synchronous, .receive_ahead = true};
    for (const std::string& name : names_of(kSchedules)) {
      if (p == 1 && row_named(kSchedules, name).chunks) continue;
      const auto result = simulate(make_schedules(name, p, m), options);
      CAPTURE(name, result.explanation);
      CHECK_FALSE(result.deadlock);
    }
    CHECK_FALSE(simulate(evaluation_lists(p, m), options).deadlock);
  });
}

TEST_CASE("simulation: with chunks a ring of synchronous sends can deadlock") {
  const SimulationOptions options{.sends = SendMode::synchronous, .receive_ahead = true, .gradient_buffers = 2};
  const auto result = simulate(make_schedules("interleaved", 8, 16, 4), options);
  CHECK(result.deadlock);
  CHECK(result.explanation.find("stage 7, action 39 (backward of micro-batch 7, chunk 3) waits for its send") !=
        std::string::npos);
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

TEST_CASE("simulation: evaluation over chunks never deadlocks with two slots") {
  for_all_sizes([](int p, int m) {
    for (int v = 2; p > 1 && v <= 4; ++v) {
      for (const SendMode mode : kModes) {
        const auto result = simulate(evaluation_lists(p, m, v), {.sends = mode});
        CAPTURE(v, static_cast<int>(mode), result.explanation);
        REQUIRE_FALSE(result.deadlock);
        if (m % p == 0) CHECK(result.makespan == Approx(v * m + p - 1));
      }
    }
  });
}

TEST_CASE("a message that is not the one meant is found: channels are queues") {
  // Stage 1 asks for chunk 1's input first; stage 0 sends chunk 0's output first.
  std::vector<std::vector<Action>> lists(2);
  lists[0] = {{.chunk = 0}, {.micro_batch = 1, .chunk = 0, .slot = 1}};
  lists[1] = {{.micro_batch = 1, .chunk = 0}, {.chunk = 0, .slot = 1}};
  const auto result = simulate(lists);
  REQUIRE(result.deadlock);
  CHECK(result.explanation.find("gets micro-batch 0's of piece 0") != std::string::npos);
}

TEST_CASE("simulation: sends without receives ahead are 1F1B's classic deadlock") {
  const auto lists = make_schedules("1f1b", 2, 4);
  const auto result = simulate(lists, {.sends = SendMode::synchronous, .receive_ahead = false});
  REQUIRE(result.deadlock);
  CHECK(result.explanation.find("stage 0") != std::string::npos);
  CHECK(result.explanation.find("stage 1") != std::string::npos);
  CHECK(result.explanation.find("for its send to be received") != std::string::npos);
  CHECK_FALSE(simulate(lists, {.sends = SendMode::nonblocking, .receive_ahead = false}).deadlock);
}

TEST_CASE("simulation: a deadlock's explanation names the stage and its wait") {
  auto lists = make_schedules("gpipe", 2, 3);
  std::erase_if(lists[0], [](const Action& a) { return a.kind == Kind::forward && a.micro_batch == 2; });
  std::erase_if(lists[0], [](const Action& a) { return a.kind == Kind::backward && a.micro_batch == 2; });
  const auto result = simulate(lists);
  REQUIRE(result.deadlock);
  CHECK(result.explanation.find("stage 1, action 2 (forward of micro-batch 2, chunk 0) waits for its input") !=
        std::string::npos);
}

TEST_CASE("simulation: a slot is not reused before its output was received") {
  // The neighbour works three seconds on something else before it asks.
  const std::vector<Action> busy(3, {.kind = Kind::backward_weight});
  std::vector<std::vector<Action>> lists = {{{.micro_batch = 0}, {.micro_batch = 1}}, busy};
  lists[1].insert(lists[1].end(), {{.micro_batch = 0}, {.micro_batch = 1, .slot = 1}});
  CHECK(simulate(lists, {.sends = SendMode::buffered}).spans[0][1].start == Approx(1));
  CHECK(simulate(lists, {.sends = SendMode::nonblocking}).spans[0][1].start == Approx(3));
  lists[0][1].slot = 1;
  CHECK(simulate(lists, {.sends = SendMode::nonblocking}).spans[0][1].start == Approx(1));

  lists = {busy, {{.kind = Kind::backward}, {.kind = Kind::backward, .micro_batch = 1}}};
  lists[0].insert(lists[0].end(), {{.kind = Kind::backward}, {.kind = Kind::backward, .micro_batch = 1}});
  const auto second = [&](SendMode mode, int buffers) {
    return simulate(lists, {.sends = mode, .gradient_buffers = buffers}).spans[1][1].start;
  };
  CHECK(second(SendMode::buffered, 1) == Approx(2));
  CHECK(second(SendMode::nonblocking, 1) == Approx(3));
  CHECK(second(SendMode::nonblocking, 2) == Approx(2));
}

TEST_CASE("with a single gradient buffer two stages of two chunks deadlock") {
  const auto lists = make_schedules("interleaved", 2, 4, 2);
  const auto result = simulate(lists, {.gradient_buffers = 1});
  REQUIRE(result.deadlock);
  CHECK(result.explanation.find("for a gradient buffer that has not been received") != std::string::npos);
}

TEST_CASE("simulation: a cut backward frees the next stage early") {
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

TEST_CASE("schedule rows: bubble, memory and halves are those of the lists") {
  for (const ScheduleFacts& facts : kSchedules) {
    const std::string name(facts.name);
    const Schedule& schedule = schedule_named(name);
    for (int p = 2; p <= 5; ++p) {
      for (int v = facts.chunks ? 2 : 1; v <= (facts.chunks ? 3 : 1); ++v) {
        const int m = 2 * p;
        CAPTURE(name, p, m, v);
        const auto lists = make_schedules(name, p, m, v);
        const auto result = simulate(lists, {.gradient_buffers = gradient_buffers(p, m, v)});
        REQUIRE_FALSE(result.deadlock);
        const std::optional<double> bubble = schedule.bubble(p, m, v);
        if (bubble) CHECK(result.bubble_fraction == Approx(*bubble).margin(1e-12));
        CHECK(slot_count(lists[0]) == Approx(v * schedule.in_flight(p, m, v)));
        const bool splits = std::any_of(lists[0].begin(), lists[0].end(), [](const Action& action) {
          return action.kind == Action::Kind::backward_weight;
        });
        CHECK(splits == facts.splits_backward);
      }
    }
  }
}

TEST_CASE("published bubbles are known where they hold") {
  CHECK(analytic_bubble("1f1b", 4, 8) == Approx(3.0 / 11));
  CHECK(analytic_bubble("gpipe", 4, 2) == Approx(3.0 / 5));
  CHECK(analytic_bubble("interleaved", 4, 8, 2) == Approx(3.0 / 19));
  CHECK(analytic_bubble("zero_bubble", 4, 8) == Approx(3.0 / 27));
  CHECK_FALSE(analytic_bubble("interleaved", 4, 3, 2).has_value());
  CHECK_FALSE(analytic_bubble("zero_bubble", 4, 3).has_value());
}

TEST_CASE("the drawing shows stages × time, chunks and both halves of a backward") {
  CHECK(draw_schedules(make_schedules("1f1b", 2, 3)) ==
        "stage   0  F0 F1 .  .  B0--- F2 B1--- .  B2--- \n"
        "stage   1  .  F0 B0--- F1 B1--- F2 B2--- .  .  \n");
  CHECK(draw_schedules(make_schedules("zero_bubble", 2, 3)) ==
        "stage   0  F0 F1 .  B0 W0 F2 B1 W1 B2 W2 \n"
        "stage   1  .  F0 B0 W0 F1 B1 F2 B2 W1 W2 \n");
  CHECK(draw_schedules(make_schedules("interleaved", 2, 2, 2)) ==
        "stage   0  F0a F1a F0b F1b .   .   B0b---- .   B1b---- B0a---- B1a---- \n"
        "stage   1  .   F0a F1a F0b B0b---- F1b B1b---- B0a---- B1a---- .   .   \n");
}

TEST_CASE("of a long list the first columns are drawn as those of a short one") {
  const std::string text = draw_schedules(make_schedules("1f1b", 2, 3000), 80, 1);
  CHECK(text.substr(0, text.find("B2")) == "stage   0  F0 F1 .  .  B0--- F2 B1--- F3 ");
  CHECK(text.find("(the first 23 of 9003 columns;") != std::string::npos);
}

TEST_CASE("eight stages are drawn, nine are not") {
  CHECK(draw_schedules(make_schedules("1f1b", 8, 9)).find("stage   7  .") != std::string::npos);
  CHECK(draw_schedules(make_schedules("1f1b", 9, 9)) == "(not drawn: 9 stages, and a drawing is readable up to 8)\n");
}

TEST_CASE("the drawing is wrapped to the width and cut after some blocks") {
  const auto lists = make_schedules("gpipe", 4, 64);
  for (const int blocks : {1, 2, 3, 100}) {
    const std::string text = draw_schedules(lists, 80, blocks);
    CHECK((text.find("of 201 columns") != std::string::npos) == (blocks < 100));
    CHECK((text.find("B63") != std::string::npos) == (blocks == 100));
    std::size_t begin = 0, rows = 0;
    for (std::size_t end; (end = text.find('\n', begin)) != std::string::npos; begin = end + 1) {
      if (text.compare(begin, 5, "stage") == 0) ++rows;
      if (text[begin] != '(') CHECK(end - begin <= 80);
    }
    CHECK(rows == static_cast<std::size_t>(4 * (blocks < 100 ? blocks : 12)));
  }
}

TEST_CASE("simulation: an evaluation may play any number of first micro-batches") {
  for_all_sizes([](int p, int m) {
    for (int chunks = 1; chunks <= (p > 1 ? 3 : 1); ++chunks) {
      const std::vector<std::vector<Action>> whole = evaluation_lists(p, m, chunks);
      for (int count = 1; count <= m; ++count) {
        CAPTURE(chunks, count);
        std::vector<std::vector<Action>> lists;
        for (const std::vector<Action>& list : whole) {
          lists.push_back(first_micro_batches(list, count));
          REQUIRE(lists.back().size() == static_cast<std::size_t>(count) * chunks);
          for (const Action& action : lists.back()) {
            REQUIRE(std::any_of(list.begin(), list.end(), [&](const Action& other) {
              return other.micro_batch == action.micro_batch && other.chunk == action.chunk &&
                     other.slot == action.slot;
            }));
          }
        }
        for (const SendMode mode : kModes) {
          const Simulation result = simulate(lists, {.sends = mode});
          INFO(result.explanation);
          REQUIRE_FALSE(result.deadlock);
        }
      }
    }
  });
}

TEST_CASE("simulation: an action's seconds may depend on when it starts") {
  for (const double first : {1.0, 3.0, 7.0}) {  // seconds of stage 0's forward, for which stage 1 waits anyway
    CAPTURE(first);
    const auto seconds = [first](int stage, const Action& action, double start) {
      if (stage == 0 && action.kind == Action::Kind::forward) return first;
      const bool waits = stage == 1 && action.kind == Action::Kind::forward;
      return 1 + (waits ? std::max(0.0, 5 - start) : 0);
    };
    const Simulation result = simulate(make_schedules("1f1b", 2, 1), {.seconds = seconds});
    const double forward = std::max(first, 5.0) + 1;
    CHECK(result.spans[1][0].start == first);
    CHECK(result.spans[1][0].finish == forward);
    CHECK(result.makespan == forward + 2);  // both backwards
  }
}

TEST_CASE("seconds by stage and action: the slowest stage sets the pace") {
  // Two stages and three micro-batches, 1F1B: the second stage is busy from 1 to the end, and the last backward of the
  // first follows.
  const auto result = simulate(make_schedules("1f1b", 2, 3), {.seconds = [](int stage, const Action& action, double) {
                                 return (stage == 1 ? 2.0 : 1.0) * (action.kind == Kind::forward ? 1 : 2);
                               }});
  REQUIRE_FALSE(result.deadlock);
  CHECK(result.makespan == Approx(1 + 3 * (2 + 4) + 2));
  CHECK(result.bubble_fraction == Approx(1 - (3 * 3 + 3 * 6) / (2 * 21.0)));
}

TEST_CASE("transfers take time between a send and its arrival, by where they go") {
  for (const SendMode mode : kModes) {
    SimulationOptions options{.forward_seconds = 1, .backward_seconds = 1, .sends = mode};
    options.transfer = [](int from, int to) { return from < to ? 0.25 : 0.5; };
    const auto result = simulate(make_schedules("gpipe", 3, 1), options);
    REQUIRE_FALSE(result.deadlock);
    CHECK(result.makespan == Approx(3 + 2 * 0.25 + 3 + 2 * 0.5));
  }
}

// Places of chosen rows: against the definition, place by place, and by hand.
#include <algorithm>
#include <tuple>

#include "backend/ops/device.h"
#include "backend/ops/ops.h"
#include "base/core/philox.h"
#include "support/catch.h"
#include "support/tensors.h"
#include "support/test_backend.h"

using namespace megatron;
using namespace megatron::test;

namespace {

struct Plan {
  Plan(const Owned<std::int32_t>& chosen, const ExpertSlots& layout)
      : slots(chosen.shape(), 77),
        entries({layout.count(chosen.shape()[1])}, 77),
        counts({chosen.shape()[1], layout.experts}, 77) {}
  bool operator==(const Plan&) const = default;

  Owned<std::int32_t> slots, entries, counts;
};

Plan plan_of(Ops& ops, const Owned<std::int32_t>& chosen, const ExpertSlots& layout, const PlaceOrder& order = {}) {
  Plan plan(chosen, layout);
  ops.plan_routes({.chosen = chosen,
                   .layout = layout,
                   .order = order,
                   .slots = plan.slots,
                   .entries = plan.entries,
                   .counts = plan.counts});
  return plan;
}

/// A slot as it is defined: [parts, experts, places of a part, b], experts as [experts of a group, groups].
std::int64_t slot_of(const ExpertSlots& layout, std::int64_t expert, std::int64_t place, std::int64_t sample,
                     std::int64_t samples) {
  const std::int64_t in_part = (layout.capacity + layout.parts - 1) / layout.parts;
  const std::int64_t in_group = layout.experts / layout.groups;
  const std::int64_t at = expert % in_group * layout.groups + expert / in_group;
  return ((place / in_part * layout.experts + at) * in_part + place % in_part) * samples + sample;
}

std::uint32_t noise_of(const PlaceOrder& order, std::int64_t expert, std::int64_t position, std::int64_t sample) {
  return philox4x32<7>({static_cast<std::uint32_t>(expert), static_cast<std::uint32_t>(position), 0,
                        static_cast<std::uint32_t>(order.first_sample + sample)},
                       order.key)[0];
}

/// The candidates of each expert and sample, sorted as the contract in expert_routing.h says.
Plan planned_by_definition(const Owned<std::int32_t>& chosen, const ExpertSlots& layout, const PlaceOrder& order,
                           const Owned<std::int32_t>& positions) {
  const std::int64_t s = chosen.shape()[0], b = chosen.shape()[1], top_k = chosen.shape()[2];
  Plan plan(chosen, layout);
  for (std::int64_t i = 0; i < plan.slots.elements(); ++i) plan.slots[i] = -1;
  for (std::int64_t i = 0; i < plan.entries.elements(); ++i) plan.entries[i] = -1;
  for (std::int64_t sample = 0; sample < b; ++sample) {
    for (std::int64_t expert = 0; expert < layout.experts; ++expert) {
      std::vector<std::tuple<std::int64_t, std::int64_t, std::int64_t>> candidates;  // choice, - noise, row of sample
      for (std::int64_t i = 0; i < s; ++i) {
        for (std::int64_t j = 0; j < top_k; ++j) {
          if (chosen[(i * b + sample) * top_k + j] != expert) continue;
          candidates.emplace_back(j, order.random ? -std::int64_t{noise_of(order, expert, positions[i], sample)} : 0,
                                  i);
        }
      }
      std::sort(candidates.begin(), candidates.end());
      const auto count = static_cast<std::int64_t>(candidates.size());
      plan.counts[sample * layout.experts + expert] = static_cast<std::int32_t>(count);
      for (std::int64_t place = 0; place < std::min(count, layout.capacity); ++place) {
        const auto& [j, noise, i] = candidates[static_cast<std::size_t>(place)];
        const std::int64_t entry = (i * b + sample) * top_k + j, slot = slot_of(layout, expert, place, sample, b);
        plan.slots[entry] = static_cast<std::int32_t>(slot);
        plan.entries[slot] = static_cast<std::int32_t>(entry);
      }
    }
  }
  return plan;
}

/// For each row top_k distinct experts; small powers make the lower ones frequent.
Owned<std::int32_t> random_choices(Shape shape, std::int64_t experts, std::uint64_t seed) {
  Owned<std::int32_t> chosen(shape);
  std::mt19937_64 engine(seed);
  for (std::int64_t row = 0; row < shape[0] * shape[1]; ++row) {
    for (std::int64_t j = 0; j < shape[2]; ++j) {
      std::int64_t expert;
      bool taken;
      do {
        const double unit = static_cast<double>(engine() >> 11) * 0x1p-53;
        expert = static_cast<std::int64_t>(unit * unit * static_cast<double>(experts));
        taken = false;
        for (std::int64_t i = 0; i < j; ++i) taken = taken || chosen[row * shape[2] + i] == expert;
      } while (taken);
      chosen[row * shape[2] + j] = static_cast<std::int32_t>(expert);
    }
  }
  return chosen;
}

Owned<std::int32_t> of_values(Shape shape, const std::vector<std::int32_t>& values) {
  return {shape, values};
}

}  // namespace

TEST_CASE("plan_routes: the definition, for every size, cut and order", "[experts]") {
  const Backend backend = make_test_backend();
  struct Case {
    std::int64_t s, b, experts, top_k, groups;
  };
  for (const Case& c : {Case{1, 1, 1, 1, 1}, Case{5, 3, 2, 1, 2}, Case{4, 2, 2, 2, 1}, Case{33, 2, 7, 3, 1},
                        Case{40, 3, 8, 2, 2}, Case{9, 1, 8, 8, 4}, Case{300, 2, 6, 2, 3}, Case{700, 1, 40, 2, 5}}) {
    const Owned<std::int32_t> chosen = random_choices({c.s, c.b, c.top_k}, c.experts, 1);
    const Owned<std::int32_t> positions = counting_ids(c.s, 100);
    for (const std::int64_t capacity : {std::int64_t{1}, std::int64_t{2}, std::int64_t{5}, c.s * c.top_k}) {
      for (const std::int64_t parts : {1, 2, 3}) {
        for (const bool random : {false, true}) {
          CAPTURE(c.s, c.b, c.experts, c.top_k, c.groups, capacity, parts, random);
          const ExpertSlots layout{.experts = c.experts, .capacity = capacity, .parts = parts, .groups = c.groups};
          const PlaceOrder order{.random = random, .key = 99, .positions = positions, .first_sample = 7};
          const Plan got = plan_of(*backend.ops, chosen, layout, order);
          const Plan want = planned_by_definition(chosen, layout, order, positions);
          REQUIRE(got.counts == want.counts);
          REQUIRE(got.slots == want.slots);
          REQUIRE(got.entries == want.entries);
        }
      }
    }
  }
}

TEST_CASE("plan_routes: first choices before second ones, then by position", "[experts]") {
  const Backend backend = make_test_backend();
  // Four rows of a sample; all want expert 0 or 1, in one order or the other.
  const auto chosen = of_values({4, 1, 2}, {1, 0, 0, 1, 0, 1, 0, 2});
  const Plan plan = plan_of(*backend.ops, chosen, {.experts = 3, .capacity = 2});
  // Expert 0: rows 1 and 2 (first choices); row 3's first and row 0's second are dropped. Expert 1: row 0, then row 1's
  // second choice. Expert 2: row 3's second choice.
  CHECK(plan.slots == of_values({4, 1, 2}, {2, -1, 0, 3, 1, -1, -1, 4}));
  CHECK(plan.entries == of_values({6}, {2, 4, 0, 3, 7, -1}));
  CHECK(plan.counts == of_values({1, 3}, {4, 3, 1}));
}

TEST_CASE("plan_routes: without slots and entries it counts, and needs no places", "[experts]") {
  const Backend backend = make_test_backend();
  const Owned<std::int32_t> chosen = random_choices({130, 3, 2}, 6, 5);
  const Plan want = plan_of(*backend.ops, chosen, {.experts = 6, .capacity = 4});
  Owned<std::int32_t> counts({3, 6}, 77);
  backend.ops->plan_routes(
      {.chosen = chosen, .layout = {.experts = 6}, .order = {}, .slots = {}, .entries = {}, .counts = counts});
  CHECK(counts == want.counts);
}

TEST_CASE("plan_routes: parts that one sample fills one after the other", "[experts]") {
  const Backend backend = make_test_backend();
  // Rounds of an exchange: in each two places for each of three experts. Expert 1 has five rows.
  const auto chosen = of_values({6, 1, 1}, {1, 1, 0, 1, 1, 1});
  const Plan plan = plan_of(*backend.ops, chosen, {.experts = 3, .capacity = 6, .parts = 3});
  CHECK(plan.entries == of_values({18}, {2, -1, 0, 1, -1, -1, -1, -1, 3, 4, -1, -1, -1, -1, 5, -1, -1, -1}));
  CHECK(plan.counts == of_values({1, 3}, {1, 5, 0}));
}

TEST_CASE("plan_routes: samples have places of their own, next to each other", "[experts]") {
  const Backend backend = make_test_backend();
  const auto chosen = of_values({2, 2, 1}, {1, 0, 1, 1});  // sample 0: 1, 1; sample 1: 0, 1
  const Plan plan = plan_of(*backend.ops, chosen, {.experts = 2, .capacity = 2});
  CHECK(plan.slots == of_values({2, 2, 1}, {4, 1, 6, 5}));
  CHECK(plan.entries == of_values({8}, {-1, 1, -1, -1, 0, 3, 2, -1}));
  CHECK(plan.counts == of_values({2, 2}, {0, 2, 1, 1}));
}

TEST_CASE("plan_routes: parts and groups change where places lie", "[experts]") {
  const Backend backend = make_test_backend();
  // Experts 0 to 3, each chosen by three rows. Capacity 3 in two parts of two places, of which one stays empty.
  const auto chosen = of_values({12, 1, 1}, {0, 0, 0, 1, 1, 1, 2, 2, 2, 3, 3, 3});
  const Plan plan = plan_of(*backend.ops, chosen, {.experts = 4, .capacity = 3, .parts = 2, .groups = 2});
  // In each part experts 0, 2, 1, 3: two groups, {0, 1} and {2, 3}.
  CHECK(plan.entries == of_values({16}, {0, 1, 6, 7, 3, 4, 9, 10, 2, -1, 8, -1, 5, -1, 11, -1}));
  CHECK(plan.slots == of_values({12, 1, 1}, {0, 1, 8, 4, 5, 12, 2, 3, 10, 6, 7, 14}));
}

TEST_CASE("plan_routes: at random the larger noise of a choice comes first", "[experts]") {
  const Backend backend = make_test_backend();
  const Owned<std::int32_t> positions = counting_ids(5, 20);
  const PlaceOrder order{.random = true, .key = 12345, .positions = positions, .first_sample = 4};
  // Rows 0 to 3 choose expert 0 first, row 4 second.
  const auto chosen = of_values({5, 1, 2}, {0, 1, 0, 1, 0, 1, 0, 1, 1, 0});
  std::vector<std::int32_t> rows{0, 1, 2, 3};
  std::sort(rows.begin(), rows.end(), [&](std::int32_t a, std::int32_t b) {
    return noise_of(order, 0, 20 + a, 0) > noise_of(order, 0, 20 + b, 0);
  });
  REQUIRE_FALSE(std::is_sorted(rows.begin(), rows.end()));
  const Plan plan = plan_of(*backend.ops, chosen, {.experts = 2, .capacity = 3}, order);
  for (std::int64_t place = 0; place < 3; ++place) {
    CHECK(plan.entries[place] == 2 * rows[static_cast<std::size_t>(place)]);
  }
  CHECK(plan.slots[2 * rows[3]] == -1);
  CHECK(plan.slots[9] == -1);
  CHECK(plan.entries[3] == 8);  // row 4's first choice of expert 1, before all second ones

  // Rows of equal positions have equal noise: the earlier one comes first.
  const Owned<std::int32_t> equal({5}, 3);
  PlaceOrder tied = order;
  tied.positions = equal;
  CHECK(plan_of(*backend.ops, chosen, {.experts = 2, .capacity = 3}, tied) ==
        plan_of(*backend.ops, chosen, {.experts = 2, .capacity = 3}));
}

TEST_CASE("plan_routes: random places do not depend on the micro-batch", "[experts]") {
  const Backend backend = make_test_backend();
  const std::int64_t s = 50, b = 4;
  const Owned<std::int32_t> chosen = random_choices({s, b, 2}, 5, 3), positions = counting_ids(s);
  const ExpertSlots layout{.experts = 5, .capacity = 6};
  const PlaceOrder whole{.random = true, .key = 8, .positions = positions, .first_sample = 10};
  const Plan plan = plan_of(*backend.ops, chosen, layout, whole);
  for (std::int64_t sample = 0; sample < b; ++sample) {
    Owned<std::int32_t> own({s, 1, 2});
    for (std::int64_t i = 0; i < own.elements(); ++i) own[i] = chosen[(i / 2 * b + sample) * 2 + i % 2];
    PlaceOrder order = whole;
    order.first_sample = 10 + sample;
    const Plan alone = plan_of(*backend.ops, own, layout, order);
    for (std::int64_t i = 0; i < own.elements(); ++i) {
      const std::int32_t slot = plan.slots[(i / 2 * b + sample) * 2 + i % 2];
      REQUIRE(alone.slots[i] == (slot < 0 ? -1 : slot / static_cast<std::int32_t>(b)));
    }
  }
}

TEST_CASE("plan_routes: one expert that has all rows, and others that have none", "[experts]") {
  const Backend backend = make_test_backend();
  const std::int64_t s = 200, b = 2;
  Owned<std::int32_t> chosen({s, b, 1}, 2);
  for (const std::int64_t capacity : {std::int64_t{1}, std::int64_t{64}, s}) {
    const ExpertSlots layout{.experts = 4, .capacity = capacity};
    const Plan plan = plan_of(*backend.ops, chosen, layout);
    CHECK(plan.counts == of_values({b, 4}, {0, 0, 200, 0, 0, 0, 200, 0}));
    for (std::int64_t slot = 0; slot < plan.entries.elements(); ++slot) {
      const bool used = slot / (capacity * b) == 2;
      REQUIRE(plan.entries[slot] == (used ? static_cast<std::int32_t>(slot - 2 * capacity * b) : -1));
    }
  }
}

TEST_CASE("plan_routes: unknown experts get no place, no rows an empty plan", "[experts]") {
  const Backend backend = make_test_backend();
  const Owned<std::int32_t> positions = counting_ids(3);
  const auto chosen = of_values({3, 1, 2}, {-1, 0, 3, 1 << 30, INT32_MIN, 2});
  for (const bool random : {false, true}) {
    const Plan plan = plan_of(*backend.ops, chosen, {.experts = 3, .capacity = 2},
                              {.random = random, .key = 1, .positions = positions});
    CHECK(plan.slots == of_values({3, 1, 2}, {-1, 0, -1, -1, -1, 4}));
    CHECK(plan.entries == of_values({6}, {1, -1, -1, -1, 5, -1}));
    CHECK(plan.counts == of_values({1, 3}, {1, 0, 1}));
    const Plan empty = plan_of(*backend.ops, Owned<std::int32_t>({0, 2, 2}), {.experts = 3, .capacity = 2},
                               {.random = random, .key = 1, .positions = Owned<std::int32_t>(Shape{0})});
    CHECK(empty.entries == Owned<std::int32_t>({12}, -1));
    CHECK(empty.counts == Owned<std::int32_t>({2, 3}, 0));
  }
}

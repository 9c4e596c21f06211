// Rows on their way to the slots of experts and back, against doubles and against each other.
#include <cstring>
#include <limits>

#include "backend/ops/device.h"
#include "backend/ops/ops.h"
#include "backend/ops/row_widths.h"
#include "support/catch.h"
#include "support/tensors.h"
#include "support/test_backend.h"

using namespace megatron;
using namespace megatron::test;

namespace {

/// Rows [s * b, h] with random choices and their plan.
template <class T>
struct Routes {
  Routes(Ops& ops, std::int64_t h_, std::int64_t capacity)
      : h(h_),
        layout{.experts = 5, .capacity = capacity, .parts = 2},
        slots({s, b, top_k}),
        entries({layout.count(b)}),
        counts({b, layout.experts}),
        gates(random_tensor({s * b, top_k}, 2)),
        x(random_tensor<T>({s * b, h}, 3)),
        slotted(random_tensor<T>({layout.count(b), h}, 4)) {
    Owned<std::int32_t> chosen({s, b, top_k});
    const Owned<std::int32_t> first = random_ids(rows(), 4, 1);
    for (std::int64_t row = 0; row < rows(); ++row) {  // expert 4 gets none
      for (std::int64_t j = 0; j < top_k; ++j) {
        chosen[row * top_k + j] = (first[row] + static_cast<std::int32_t>(j)) % 4;
      }
    }
    ops.plan_routes(
        {.chosen = chosen, .layout = layout, .order = {}, .slots = slots, .entries = entries, .counts = counts});
  }
  std::int64_t rows() const { return s * b; }
  std::int64_t slot_count() const { return layout.count(b); }

  std::int64_t s = 11, b = 3, top_k = 3, h;
  ExpertSlots layout;
  Owned<std::int32_t> slots, entries, counts;
  Owned<float> gates;
  Owned<T> x, slotted;
};

}  // namespace

TEMPLATE_TEST_CASE("dispatch_rows: the gated row of each entry, zeros in empty slots", "[experts]", float, BFloat16,
                   Float16) {
  const Backend backend = make_test_backend();
  for (const std::int64_t h : kRowWidths) {
    for (const std::int64_t capacity : {2, 33}) {
      Routes<TestType> routes(*backend.ops, h, capacity);
      for (const bool gated : {false, true}) {
        CAPTURE(h, capacity, gated);
        std::vector<double> want = zeros(routes.slot_count() * h);
        std::int64_t empty = 0;
        for (std::int64_t i = 0; i < routes.slot_count() * h; ++i) {
          const std::int32_t entry = routes.entries[i / h];
          empty += entry < 0 ? 1 : 0;
          if (entry < 0) continue;
          want[static_cast<std::size_t>(i)] =
              (gated ? routes.gates.value(entry) : 1) * routes.x.value(entry / routes.top_k * h + i % h);
        }
        CHECK(empty > 0);
        const auto dispatch = [&](const Owned<std::int32_t>& entries, Owned<TestType>& y) {
          backend.ops->dispatch_rows({.x = routes.x,
                                      .entries = entries,
                                      .gates = gated ? routes.gates.tensor() : Tensor(),
                                      .top_k = routes.top_k,
                                      .y = y});
        };
        Owned<TestType> y = random_tensor<TestType>({routes.slot_count(), h}, 5);
        dispatch(routes.entries, y);
        CHECK(difference(y, want, gated ? 1e-7 : 0) == "");
        // Entries of rows that there are not: nothing is read.
        Owned<std::int32_t> damaged({3}, std::vector<std::int32_t>{INT32_MAX, INT32_MIN, 99});
        Owned<TestType> nothing({3, h}, narrow<TestType>(9.0f));
        dispatch(damaged, nothing);
        CHECK(difference(nothing, zeros(3 * h), 0) == "");
      }
    }
  }
}

TEMPLATE_TEST_CASE("combine_rows: the sum of the gated rows of a range of slots", "[experts]", float, BFloat16,
                   Float16) {
  const Backend backend = make_test_backend();
  for (const std::int64_t h : kRowWidths) {
    Routes<TestType> routes(*backend.ops, h, 7);
    const std::int64_t half = routes.slot_count() / 2;
    struct Part {
      std::int64_t first, count;
    };
    for (const Part& part : {Part{0, routes.slot_count()}, Part{0, half}, Part{half, half}, Part{half, 1}}) {
      for (const bool gated : {false, true}) {
        CAPTURE(h, part.first, part.count, gated);
        std::vector<double> want = zeros(routes.rows() * h);
        for (std::int64_t choice = 0; choice < routes.slots.elements(); ++choice) {
          const std::int64_t at = routes.slots[choice] - part.first;
          if (routes.slots[choice] < 0 || at < 0 || at >= part.count) continue;
          for (std::int64_t i = 0; i < h; ++i) {
            want[static_cast<std::size_t>(choice / routes.top_k * h + i)] +=
                (gated ? routes.gates.value(choice) : 1) * routes.slotted.value((part.first + at) * h + i);
          }
        }
        Owned<TestType> y = random_tensor<TestType>({routes.rows(), h}, 5);
        backend.ops->combine_rows({.x = routes.slotted.tensor().slice(0, part.first, part.count),
                                   .slots = routes.slots,
                                   .first_slot = part.first,
                                   .gates = gated ? routes.gates.tensor() : Tensor(),
                                   .y = y});
        CHECK(difference(y, want, 3e-7) == "");
      }
    }
  }
}

TEMPLATE_TEST_CASE("combine_gates_backward: products of rows, 0 without a place", "[experts]", float, BFloat16,
                   Float16) {
  const Backend backend = make_test_backend();
  for (const std::int64_t h : kRowWidths) {
    CAPTURE(h);
    Routes<TestType> routes(*backend.ops, h, 7);
    for (const std::int64_t first : {std::int64_t{0}, routes.slot_count() / 3}) {
      const std::int64_t count = routes.slot_count() - first - 4;
      std::vector<double> want = zeros(routes.slots.elements());
      double largest = 0;
      for (std::int64_t choice = 0; choice < routes.slots.elements(); ++choice) {
        const std::int64_t at = routes.slots[choice] - first;
        if (routes.slots[choice] < 0 || at < 0 || at >= count) continue;
        double terms = 0;
        for (std::int64_t i = 0; i < h; ++i) {
          const double term =
              routes.slotted.value((first + at) * h + i) * routes.x.value(choice / routes.top_k * h + i);
          want[static_cast<std::size_t>(choice)] += term;
          terms += std::abs(term);
        }
        largest = std::max(largest, terms);
      }
      Owned<float> dgates({routes.rows(), routes.top_k}, 9.0f);
      backend.ops->combine_gates_backward({.x = routes.slotted.tensor().slice(0, first, count),
                                           .slots = routes.slots,
                                           .first_slot = first,
                                           .dy = routes.x,
                                           .dgates = dgates});
      CHECK(difference(dgates, want, 1e-7, 10 * largest) == "");
    }
  }
}

TEMPLATE_TEST_CASE("combine_rows: ranges of slots in turn and then rows of all choices", "[experts]", float, BFloat16,
                   Float16) {
  const Backend backend = make_test_backend();
  for (const std::int64_t h : kRowWidths) {
    CAPTURE(h);
    Routes<TestType> routes(*backend.ops, h, 33);
    const std::int64_t choices = routes.slots.elements(), half = routes.slot_count() / 2;
    // Each choice's row from the half of the slots where it is: the bits of all at once.
    Owned<TestType> by_choice({choices, h}, narrow<TestType>(9.0f)), want({choices, h});
    const Tensor slots = routes.slots.tensor().view({choices, 1}), x = routes.slotted;
    backend.ops->combine_rows({.x = x, .slots = slots, .gates = {}, .y = want});
    for (const std::int64_t first : {std::int64_t{0}, half}) {
      backend.ops->combine_rows({.x = x.slice(0, first, half),
                                 .slots = slots,
                                 .first_slot = first,
                                 .gates = {},
                                 .y = by_choice,
                                 .accumulate = first > 0});
    }
    CHECK(by_choice == want);
    // Rows of all choices: as if their numbers were their slots.
    const Owned<std::int32_t> own = counting_ids(choices);
    const ConstTensor numbers = own.tensor().view(routes.slots.shape());
    Owned<TestType> got({routes.rows(), h}), expected({routes.rows(), h});
    backend.ops->combine_rows({.x = by_choice, .slots = {}, .gates = routes.gates, .y = got});
    backend.ops->combine_rows({.x = by_choice, .slots = numbers, .gates = routes.gates, .y = expected});
    CHECK(got == expected);
    Owned<float> dgates(routes.gates.shape(), 9.0f), expected_dgates(routes.gates.shape());
    backend.ops->combine_gates_backward({.x = by_choice, .slots = {}, .dy = routes.x, .dgates = dgates});
    backend.ops->combine_gates_backward({.x = by_choice, .slots = numbers, .dy = routes.x, .dgates = expected_dgates});
    CHECK(dgates == expected_dgates);
    // Added to what is there, gates and all; a row without a choice here stays as it is, NaN too.
    std::vector<double> sums;
    Owned<TestType> y = random_tensor<TestType>({routes.rows(), h}, 5);
    for (std::int64_t i = 0; i < y.elements(); ++i) sums.push_back(y.value(i) + 2 * got.value(i));
    Owned<float> twice = routes.gates;
    for (std::int64_t i = 0; i < twice.elements(); ++i) twice[i] *= 2;
    backend.ops->combine_rows({.x = by_choice, .slots = {}, .gates = twice, .y = y, .accumulate = true});
    CHECK(difference(y, sums, std::is_same_v<TestType, float> ? 3e-7 : 2e-2) == "");
    Owned<TestType> kept({routes.rows(), h}, narrow<TestType>(std::numeric_limits<float>::quiet_NaN()));
    const Owned<TestType> before = kept;
    const Owned<std::int32_t> dropped(routes.slots.shape(), -1);
    backend.ops->combine_rows({.x = by_choice, .slots = dropped, .gates = {}, .y = kept, .accumulate = true});
    CHECK(std::memcmp(kept.tensor().data(), before.tensor().data(), kept.tensor().bytes()) == 0);
  }
}

TEST_CASE("dispatch_rows and combine_rows are each other's gradient", "[experts]") {
  const Backend backend = make_test_backend();
  const std::int64_t h = 65;
  Routes<float> routes(*backend.ops, h, 7);
  const Owned<float>&x = routes.x, &v = routes.slotted;
  Owned<float> dispatched({routes.slot_count(), h}), combined({routes.rows(), h}), dgates(routes.gates.shape());
  const auto product = [](const Owned<float>& a, const Owned<float>& b) {
    double sum = 0;
    for (std::int64_t i = 0; i < a.elements(); ++i) sum += a.value(i) * b.value(i);
    return sum;
  };
  for (const bool gated : {false, true}) {
    const Tensor gates = gated ? routes.gates.tensor() : Tensor();
    backend.ops->dispatch_rows({x, routes.entries, gates, routes.top_k, dispatched});
    backend.ops->combine_rows({v, routes.slots, 0, gates, combined});
    CHECK(product(dispatched, v) == Approx(product(x, combined)).epsilon(1e-6));
  }
  backend.ops->combine_gates_backward({v, routes.slots, 0, x, dgates});  // combined: with gates, in which it is linear
  CHECK(product(dgates, routes.gates) == Approx(product(x, combined)).epsilon(1e-6));
}

TEST_CASE("combine_rows: rows that all have places come back top_k times", "[experts]") {
  const Backend backend = make_test_backend();
  Routes<float> routes(*backend.ops, 40, 33);
  Owned<float> dispatched({routes.slot_count(), 40}), back({routes.rows(), 40});
  backend.ops->dispatch_rows({routes.x, routes.entries, {}, routes.top_k, dispatched});
  backend.ops->combine_rows({dispatched, routes.slots, 0, {}, back});
  std::vector<double> want;
  for (std::int64_t i = 0; i < routes.x.elements(); ++i) want.push_back(3 * routes.x.value(i));
  CHECK(difference(back, want, 2e-7) == "");
}

TEST_CASE("combine_rows: rows without places are zeros, slots may hold NaN", "[experts]") {
  const Backend backend = make_test_backend();
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const Owned<float> x({2, 5}, nan), gates({3, 2}, nan), dy({3, 5}, 1.0f);
  const Owned<std::int32_t> slots({3, 2}, std::vector<std::int32_t>{-1, -1, INT32_MIN, 2, INT32_MAX, -7});
  Owned<float> y({3, 5}, 9.0f), dgates({3, 2}, 9.0f);
  for (const std::int64_t first : {0, 3}) {
    backend.ops->combine_rows({x, slots, first, gates, y});
    CHECK(y == Owned<float>({3, 5}));
    backend.ops->combine_gates_backward({x, slots, first, dy, dgates});
    CHECK(dgates == Owned<float>({3, 2}));
  }
}

TEST_CASE("expert rows: no rows and no slots are no error", "[experts]") {
  const Backend backend = make_test_backend();
  Owned<float> none({0, 8}), slotted({4, 8}, 9.0f), gates({0, 2});
  Owned<std::int32_t> entries({4}, -1), no_entries(Shape{0}), slots({0, 2}), dropped({3, 2}, -1);
  backend.ops->dispatch_rows({none, entries, {}, 2, slotted});
  CHECK(slotted == Owned<float>({4, 8}));
  backend.ops->dispatch_rows({slotted, no_entries, {}, 2, none});
  backend.ops->combine_rows({slotted, slots, 0, gates, none});
  backend.ops->combine_gates_backward({slotted, slots, 0, none, gates});
  Owned<float> y({3, 8}, 9.0f);
  backend.ops->combine_rows({none, dropped, 0, {}, y});
  CHECK(y == Owned<float>({3, 8}));
}

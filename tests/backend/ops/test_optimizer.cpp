#include <limits>

#include "backend/ops/device.h"
#include "backend/ops/ops.h"
#include "support/catch.h"
#include "support/tensors.h"
#include "support/test_backend.h"

using namespace megatron;
using namespace megatron::test;

TEST_CASE("adamw follows its fp64 reference over several updates") {
  const Backend backend = make_test_backend();
  for (const std::int64_t n : {1, 7, 33, 1000}) {
    CAPTURE(n);
    Owned<float> value = random_tensor({n}, 1), m({n}), v({n});
    std::vector<double> value64 = as_doubles(value), m64(value64.size()), v64(value64.size());
    const Owned<float> factor({1}, 0.5f), skip({1});
    const double beta1 = static_cast<double>(0.9f), beta2 = static_cast<double>(0.95f), rate = 1e-2, decay = 0.1,
                 epsilon = 1e-8;
    for (std::int64_t step = 1; step <= 5; ++step) {
      const Owned<float> gradient = random_tensor({n}, static_cast<std::uint64_t>(10 + step));
      backend.ops->adamw({.value = value,
                          .gradient = gradient,
                          .m = m,
                          .v = v,
                          .clip_factor = factor,
                          .skip = skip,
                          .learning_rate = 1e-2f,
                          .beta1 = 0.9f,
                          .beta2 = 0.95f,
                          .epsilon = 1e-8f,
                          .weight_decay = 0.1f,
                          .step = step});
      for (std::size_t i = 0; i < value64.size(); ++i) {
        const double g = 0.5 * static_cast<double>(gradient.values()[i]);
        m64[i] = beta1 * m64[i] + (1 - beta1) * g;
        v64[i] = beta2 * v64[i] + (1 - beta2) * g * g;
        const double m_hat = m64[i] / (1 - std::pow(beta1, step)), v_hat = v64[i] / (1 - std::pow(beta2, step));
        value64[i] -= rate * (m_hat / (std::sqrt(v_hat) + epsilon) + decay * value64[i]);
      }
    }
    CHECK(difference(m, m64, 1e-6) == "");
    CHECK(difference(v, v64, 1e-6) == "");
    CHECK(difference(value, value64, 1e-6) == "");
  }
}

TEST_CASE("adamw: the first update is the rate against the gradient's sign") {
  const Backend backend = make_test_backend();
  Owned<float> value({3}, 1.0f), m({3}), v({3});
  const Owned<float> gradient({3}, {1e-3f, -100, 0}), factor({1}, 1.0f), skip({1});
  backend.ops->adamw({.value = value,
                      .gradient = gradient,
                      .m = m,
                      .v = v,
                      .clip_factor = factor,
                      .skip = skip,
                      .learning_rate = 0.25f,
                      .weight_decay = 0.5f});
  CHECK(static_cast<double>(value[0]) == Approx(1 - 0.25 - 0.125).epsilon(1e-4));
  CHECK(static_cast<double>(value[1]) == Approx(1 + 0.25 - 0.125).epsilon(1e-6));
  CHECK(value[2] == 0.875f);
}

TEST_CASE("a skipped update changes nothing, whatever the gradient is") {
  const Backend backend = make_test_backend();
  Owned<float> value = random_tensor({33}, 1), m = random_tensor({33}, 2), v = random_tensor({33}, 3);
  const Owned<float> value_before = value, m_before = m, v_before = v;
  const Owned<float> gradient({33}, std::numeric_limits<float>::quiet_NaN()), factor({1}, 1.0f), skip({1}, 1.0f);
  backend.ops->adamw(
      {.value = value, .gradient = gradient, .m = m, .v = v, .clip_factor = factor, .skip = skip, .learning_rate = 1});
  CHECK(value == value_before);
  CHECK(m == m_before);
  CHECK(v == v_before);
}

TEST_CASE("sgd: follows its fp64 reference with and without momentum") {
  const Backend backend = make_test_backend();
  for (const std::int64_t n : {1, 7, 33, 1000}) {
    for (const bool with_momentum : {true, false}) {
      CAPTURE(n, with_momentum);
      Owned<float> value = random_tensor({n}, 1), m({n});
      std::vector<double> value64 = as_doubles(value), m64(value64.size());
      const Owned<float> factor({1}, 0.5f), skip({1});
      const double momentum = with_momentum ? static_cast<double>(0.9f) : 0;
      for (std::uint64_t step = 1; step <= 5; ++step) {
        const Owned<float> gradient = random_tensor({n}, 10 + step);
        backend.ops->sgd({.value = value,
                          .gradient = gradient,
                          .m = with_momentum ? m.tensor() : Tensor(),
                          .clip_factor = factor,
                          .skip = skip,
                          .learning_rate = 1e-2f,
                          .momentum = 0.9f,
                          .weight_decay = 0.1f});
        for (std::size_t i = 0; i < value64.size(); ++i) {
          const double g = 0.5 * static_cast<double>(gradient.values()[i]) + static_cast<double>(0.1f) * value64[i];
          m64[i] = momentum * m64[i] + g;
          value64[i] -= static_cast<double>(1e-2f) * m64[i];
        }
      }
      if (with_momentum) CHECK(difference(m, m64, 1e-6) == "");
      CHECK(difference(value, value64, 1e-6) == "");
    }
  }
}

TEST_CASE("sgd: decay is part of the gradient and a skipped update does nothing") {
  const Backend backend = make_test_backend();
  Owned<float> value({2}, {4, -2}), m({2}, {1, 0});
  const Owned<float> gradient({2}, {2, 8}), factor({1}, 0.5f), advance({1}), skip({1}, 1.0f);
  SgdArgs args{.value = value,
               .gradient = gradient,
               .m = m,
               .clip_factor = factor,
               .skip = skip,
               .learning_rate = 0.5f,
               .momentum = 0.5f,
               .weight_decay = 0.25f};
  backend.ops->sgd(args);
  CHECK(value.values() == std::vector<float>{4, -2});
  CHECK(m.values() == std::vector<float>{1, 0});
  args.skip = advance;
  backend.ops->sgd(args);
  CHECK(m.values() == std::vector<float>{2.5f, 3.5f});  // 1/2 + (1 + 1), (4 - 1/2)
  CHECK(value.values() == std::vector<float>{2.75f, -3.75f});
}

TEST_CASE("lion: follows its fp64 reference over several updates") {
  const Backend backend = make_test_backend();
  for (const std::int64_t n : {0, 1, 7, 33, 1000}) {
    CAPTURE(n);
    Owned<float> value = random_tensor({n}, 1), m({n});
    std::vector<double> value64 = as_doubles(value), m64(value64.size());
    const Owned<float> factor({1}, 0.5f), skip({1});
    const double beta1 = static_cast<double>(0.9f), beta2 = static_cast<double>(0.95f);
    const double rate = static_cast<double>(1e-2f), decay = static_cast<double>(0.1f);
    std::int64_t turned = 0;
    for (std::uint64_t step = 1; step <= 5; ++step) {
      const Owned<float> gradient = random_tensor({n}, 20 + step);
      backend.ops->lion({.value = value,
                         .gradient = gradient,
                         .m = m,
                         .clip_factor = factor,
                         .skip = skip,
                         .learning_rate = 1e-2f,
                         .beta1 = 0.9f,
                         .beta2 = 0.95f,
                         .weight_decay = 0.1f});
      for (std::size_t i = 0; i < value64.size(); ++i) {
        const double g = 0.5 * static_cast<double>(gradient.values()[i]);
        const double mean = beta1 * m64[i] + (1 - beta1) * g;
        if (mean * g < 0) ++turned;
        value64[i] = value64[i] * (1 - rate * decay) - rate * (mean > 0 ? 1 : -1);
        m64[i] = beta2 * m64[i] + (1 - beta2) * g;
      }
    }
    CHECK(difference(m, m64, 1e-6) == "");
    CHECK(difference(value, value64, 1e-6) == "");
    if (n == 1000) CHECK(turned > 100);  // where the momentum decides
  }
}

TEST_CASE("lion: rate and decay alone decide a step and 0 has no sign") {
  const Backend backend = make_test_backend();
  Owned<float> value({4}, 1.0f), m({4}, {0, 0, 0, 1});
  const Owned<float> gradient({4}, {1e-30f, -1e30f, 0, -4}), bad({4}, std::numeric_limits<float>::quiet_NaN());
  const Owned<float> factor({1}, 0.5f), advance({1}), skip({1}, 1.0f);
  LionArgs args{.value = value,
                .gradient = bad,
                .m = m,
                .clip_factor = factor,
                .skip = skip,
                .learning_rate = 0.25f,
                .beta1 = 0.75f,
                .beta2 = 0.5f,
                .weight_decay = 0.5f};
  backend.ops->lion(args);
  CHECK(value.values() == std::vector<float>{1, 1, 1, 1});
  CHECK(m.values() == std::vector<float>{0, 0, 0, 1});
  args.gradient = gradient;
  args.skip = advance;
  backend.ops->lion(args);
  // The last: the mean is 3/4 - 2/4, and the momentum turns: 1/2 - 2/2.
  CHECK(value.values() == std::vector<float>{0.625f, 1.125f, 0.875f, 0.625f});
  CHECK(m.values() == std::vector<float>{2.5e-31f, -2.5e29f, 0, -0.5f});
}

TEST_CASE("square_sum adds in double") {
  const Backend backend = make_test_backend();
  for (const std::int64_t n : {0, 1, 7, 33, 1000, 100000}) {
    CAPTURE(n);
    const Owned<float> x = random_tensor({n}, 1);
    double want = 0;
    for (const float element : x.values()) want += static_cast<double>(element) * static_cast<double>(element);
    Owned<double> total({1}, 3.0);
    backend.ops->square_sum({.x = x, .total = total});
    backend.ops->square_sum({.x = x, .total = total});
    CHECK(total[0] == Approx(3 + 2 * want).epsilon(1e-13));
  }
  Owned<float> large({40}, 1e30f);  // its square is no float
  Owned<double> total({1});
  backend.ops->square_sum({.x = large, .total = total});
  CHECK(total[0] == Approx(40 * std::pow(static_cast<double>(1e30f), 2)).epsilon(1e-13));
}

TEST_CASE("divide_by_norm: elements over the norm and epsilon") {
  const Backend backend = make_test_backend();
  for (const std::int64_t n : {0, 1, 7, 33, 1030, 100000}) {
    for (const std::int64_t first : {0, 1}) {  // aligned, and not
      CAPTURE(n, first);
      Owned<float> x = random_tensor({n + 2}, 1);
      const Owned<float> before = x;
      const Owned<double> square_sum({1}, 6.25);
      backend.ops->divide_by_norm({.x = x.tensor().slice(0, first, n), .square_sum = square_sum, .epsilon = 0.5f});
      std::int64_t wrong = 0;
      for (std::int64_t i = 0; i < n + 2; ++i) {
        const bool inside = i >= first && i < first + n;
        const double want = inside ? before.value(i) / 3 : before.value(i);
        if (std::abs(x.value(i) - want) > (inside ? 1e-7 * std::abs(want) : 0)) ++wrong;
      }
      CHECK(wrong == 0);
    }
  }
  Owned<float> large({2}, {3e30f, -4e30f}), zero({2});  // the square of the norm is no float
  Owned<double> square_sum({1});
  backend.ops->square_sum({.x = large, .total = square_sum});
  backend.ops->divide_by_norm({.x = large, .square_sum = square_sum});
  CHECK(static_cast<double>(large[0]) == Approx(0.6).epsilon(1e-7));
  CHECK(static_cast<double>(large[1]) == Approx(-0.8).epsilon(1e-7));
  const Owned<double> nothing({1});
  backend.ops->divide_by_norm({.x = zero, .square_sum = nothing, .epsilon = 1e-7f});
  CHECK(zero.values() == std::vector<float>{0, 0});
}

namespace {

constexpr double kInfiniteSum = std::numeric_limits<double>::infinity(),
                 kNaNSum = std::numeric_limits<double>::quiet_NaN();

struct JudgedStep {
  double square_sum = 16, all = 16, uncounted = 0;
  std::vector<double> losses = {1, 2};
  float maximum = 0;
  double loss_scale = 1;
};

/// Norm, factor, skip and bad_loss.
std::vector<float> judged(const Backend& backend, const JudgedStep& step) {
  const auto terms = static_cast<std::int64_t>(step.losses.size());
  const Owned<double> square_sum({1}, step.square_sum), all({1}, step.all), uncounted({1}, step.uncounted);
  Owned<double> losses({std::max<std::int64_t>(terms, 1)});
  for (std::int64_t i = 0; i < terms; ++i) losses[i] = step.losses[static_cast<std::size_t>(i)];
  Owned<float> results({4}, -5.0f);
  backend.ops->judge_step({.square_sum = square_sum,
                           .all_square_sum = all,
                           .uncounted_square_sum = uncounted,
                           .losses = terms > 0 ? losses.tensor() : Tensor(),
                           .maximum = step.maximum,
                           .loss_scale = step.loss_scale,
                           .norm = results.tensor().slice(0, 0, 1),
                           .factor = results.tensor().slice(0, 1, 1),
                           .skip = results.tensor().slice(0, 2, 1),
                           .bad_loss = results.tensor().slice(0, 3, 1)});
  return results.copied_values();
}

}  // namespace

TEST_CASE("judge_step: norm and clipping factor of one copy's gradient") {
  const Backend backend = make_test_backend();
  const auto clip = [&](double square_sum, float maximum, double loss_scale = 1) {
    return judged(backend, {.square_sum = square_sum, .maximum = maximum, .loss_scale = loss_scale});
  };
  const std::vector<float> above = clip(16, 1);
  CHECK(above[0] == 4);
  CHECK(static_cast<double>(above[1]) == Approx(1 / (4 + 1e-6)).epsilon(1e-7));
  CHECK(above[2] == 0);
  CHECK(above[3] == 0);
  CHECK(clip(0.25, 1) == std::vector<float>{0.5f, 1, 0, 0});
  CHECK(clip(16, 0) == std::vector<float>{4, 1, 0, 0});
  CHECK(clip(0, 1) == std::vector<float>{0, 1, 0, 0});
  // Gradients of a scaled loss: the norm is the loss' own, the factor takes the scale off.
  CHECK(clip(16.0 * 1024 * 1024, 0, 1024) == std::vector<float>{4, 1.0f / 1024, 0, 0});
  CHECK(clip(16.0 * 1024 * 1024, 1, 1024) == std::vector<float>{4, above[1] / 1024, 0, 0});
}

TEST_CASE("judge_step: skips for what is not finite on any rank") {
  const Backend backend = make_test_backend();
  const std::vector<float> good{4, 1, 0, 0}, bad_gradient{4, 1, 1, 0}, bad_loss{4, 1, 1, 1};
  for (const double bad : {kInfiniteSum, kNaNSum}) {
    CAPTURE(bad);
    CHECK(judged(backend, {.all = bad}) == bad_gradient);
    CHECK(judged(backend, {.uncounted = bad}) == bad_gradient);
    for (const float maximum : {0.0f, 1.0f}) {
      CHECK(judged(backend, {.square_sum = bad, .all = bad, .maximum = maximum})[2] == 1);
    }
    CHECK(judged(backend, {.losses = {bad, 2}}) == bad_loss);
    CHECK(judged(backend, {.losses = {1, bad}}) == bad_loss);
    CHECK(judged(backend, {.all = bad, .losses = {1, bad}}) == bad_loss);
  }
  CHECK(judged(backend, {.losses = {}}) == good);
  // This replica's own sum decides nothing: another replica, whose sum is another, must decide the same.
  CHECK(judged(backend, {.square_sum = kInfiniteSum})[2] == 0);
  // A norm must be a float and be finite as that; losses and sums need not be floats.
  CHECK(judged(backend, {.all = 1e76}) == good);
  CHECK(judged(backend, {.all = 1e80}) == bad_gradient);
  CHECK(judged(backend, {.all = 1e80, .loss_scale = 65536})[2] == 0);
  CHECK(judged(backend, {.uncounted = 1e300, .losses = {1e300}}) == good);
}

TEST_CASE("updates: any part of the parameters is updated like the whole") {
  const Backend backend = make_test_backend();
  const std::int64_t n = 1030;
  const Owned<float> gradient = random_tensor({n}, 1), value = random_tensor({n}, 2), factor({1}, 0.5f), skip({1});
  const auto update = [&](std::int64_t first, std::int64_t count, std::string_view rule) {
    Owned<float> updated = value, m({n}, 0.25f), v({n}, 0.5f);
    const auto part = [&](Owned<float>& tensor) { return tensor.tensor().slice(0, first, count); };
    if (rule == "adamw") {
      backend.ops->adamw({.value = part(updated),
                          .gradient = gradient.tensor().slice(0, first, count),
                          .m = part(m),
                          .v = part(v),
                          .clip_factor = factor,
                          .skip = skip,
                          .learning_rate = 0.1f});
    } else if (rule == "lion") {
      backend.ops->lion({.value = part(updated),
                         .gradient = gradient.tensor().slice(0, first, count),
                         .m = part(m),
                         .clip_factor = factor,
                         .skip = skip,
                         .learning_rate = 0.1f});
    } else {
      backend.ops->sgd({.value = part(updated),
                        .gradient = gradient.tensor().slice(0, first, count),
                        .m = part(m),
                        .clip_factor = factor,
                        .skip = skip,
                        .learning_rate = 0.1f});
    }
    return updated;
  };
  for (const std::string rule : {"adamw", "lion", "sgd"}) {
    const Owned<float> whole = update(0, n, rule);
    for (const std::int64_t first : {1, 4, 7}) {
      for (const std::int64_t count : {1, 33, 1021}) {
        CAPTURE(rule, first, count);
        const Owned<float> part = update(first, count, rule);
        std::int64_t wrong = 0;
        for (std::int64_t i = 0; i < n; ++i) {
          // Vectorised loops and their remainders may contract differently.
          const bool inside = i >= first && i < first + count;
          const double want = static_cast<double>(inside ? whole[i] : value[i]);
          if (std::abs(static_cast<double>(part[i]) - want) > (inside ? 1e-6 : 0)) ++wrong;
        }
        CHECK(wrong == 0);
        Owned<double> total({1});
        double want = 0;
        for (std::int64_t i = first; i < first + count; ++i) want += gradient.value(i) * gradient.value(i);
        backend.ops->square_sum({.x = gradient.tensor().slice(0, first, count), .total = total});
        CHECK(total[0] == Approx(want).epsilon(1e-13));
      }
    }
  }
}

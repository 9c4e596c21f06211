// Muon's update of one matrix, in its three acts, against an fp64 reference (muon_reference.h).
#include "training/optimizer/muon.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "backend/ops/backends.h"
#include "backend/ops/counting_ops.h"
#include "support/catch.h"
#include "support/tensors.h"
#include "training/optimizer/muon_reference.h"
#include "training/optimizer/newton_schulz.h"

using namespace megatron;
using namespace megatron::test;

namespace {

struct MuonSettings {
  double momentum = 0.95;
  bool nesterov = true;
  MuonScale scale = MuonScale::spectral;
};

struct MuonReference {
  MuonSettings settings;
  Matrix64 m;

  /// The change of the values at a rate of 1, without decay.
  Matrix64 update(const Matrix64& gradient) {
    const double beta = settings.momentum;
    m = sum(beta, m, 1 - beta, gradient);
    const Matrix64 direction = settings.nesterov ? sum(1 - beta, gradient, beta, m) : m;
    const auto out = static_cast<double>(m.rows), in = static_cast<double>(m.columns);
    const double scale =
        settings.scale == MuonScale::spectral ? std::sqrt(std::max(1.0, out / in)) : 0.2 * std::sqrt(std::max(out, in));
    return sum(-scale, zeroth_power(direction), 0, m);
  }
};

/// A step of a whole matrix, whose tensors are f32 [rows, columns]. The first and the last act may be done in parts.
struct MuonUpdate {
  Tensor value, gradient, m;
  ConstTensor clip_factor, skip;
  double rate = 0, decay = 0;

  void run(Ops& ops, Arena& scratch, const MuonSettings& settings) const {
    const ArenaScope scope(scratch);
    const Shape& shape = value.shape();
    const Tensor direction = scratch.allocate("direction", shape, DType::f32);
    const Tensor update = scratch.allocate("update", shape, DType::f32);
    find_muon_direction(ops, scratch, {settings.momentum, settings.nesterov},
                        {.gradient = gradient, .m = m, .clip_factor = clip_factor, .skip = skip}, direction);
    orthogonalize(ops, scratch, direction, update);
    apply_muon(ops, scratch, muon_scale_factor(settings.scale, shape[0], shape[1]),
               {.value = value,
                .update = update,
                .skip = skip,
                .learning_rate = static_cast<float>(rate),
                .weight_decay = static_cast<float>(decay)});
  }
};

/// A matrix with its state, a clip factor of 1 and steps that are not skipped, and scratch that holds NaN.
struct Trial {
  Backend backend;
  MuonSettings settings;
  Owned<float> value, gradient, m, clip_factor = Owned<float>({1}, 1.0f), skip = Owned<float>({1});
  Buffer memory;
  Arena scratch;

  Trial(Shape shape, const MuonSettings& wanted, Backend with = make_test_backend())
      : backend(std::move(with)),
        settings(wanted),
        value(random_tensor(shape, 1, 0.1)),
        gradient(random_tensor(shape, 2)),
        m(shape),
        memory(*backend.device, static_cast<std::size_t>(16 * shape.elements() + 1024)),
        scratch("test", memory) {
    const auto floats = static_cast<std::int64_t>(memory.bytes() / sizeof(float));
    backend.ops->fill(memory.tensor({floats}, DType::f32), std::numeric_limits<double>::quiet_NaN());
  }

  void update(double rate, double decay = 0) {
    MuonUpdate{value, gradient, m, clip_factor, skip, rate, decay}.run(*backend.ops, scratch, settings);
  }
};

const std::vector<Shape> kShapes = {{1, 1}, {1, 50}, {50, 1}, {24, 24}, {17, 80}, {80, 17}, {64, 96}, {96, 64}};

/// Rows of unit length at right angles to each other.
Matrix64 orthonormal_rows(std::int64_t rows, std::int64_t columns, std::uint64_t seed) {
  Matrix64 x = as_matrix64(random_tensor({rows, columns}, seed));
  for (std::int64_t i = 0; i < rows; ++i) {
    for (std::int64_t before = 0; before <= 2 * i; ++before) {  // twice over those in front, for rounding; then itself
      const std::int64_t k = before == 2 * i ? i : before % i;
      double along = 0;
      for (std::int64_t j = 0; j < columns; ++j) along += x.at(i, j) * x.at(k, j);
      for (std::int64_t j = 0; j < columns; ++j) {
        x.at(i, j) = k == i ? x.at(i, j) / std::sqrt(along) : x.at(i, j) - along * x.at(k, j);
      }
    }
  }
  return x;
}

}  // namespace

TEST_CASE("Muon: twenty updates follow the fp64 reference") {
  const MuonScale scale = GENERATE(MuonScale::spectral, MuonScale::match_adam_rms);
  const bool nesterov = GENERATE(true, false);
  for (const Shape& shape : kShapes) {
    const MuonSettings settings{.momentum = 0.9, .nesterov = nesterov, .scale = scale};
    Trial trial(shape, settings);
    trial.clip_factor[0] = 0.25f;
    MuonReference reference{settings, {shape[0], shape[1]}};
    double worst = 0;
    for (std::uint64_t step = 1; step <= 20; ++step) {
      trial.gradient = random_tensor(shape, 10 + step, step % 5 == 0 ? 1e-3 : 1);
      const double rate = step % 2 == 0 ? 0.5 : 0.25, decay = 0.1;
      const Matrix64 before = as_matrix64(trial.value), gradient = as_matrix64(trial.gradient);
      trial.update(rate, decay);
      const Matrix64 want = reference.update(sum(0.25, gradient, 0, gradient));
      const Matrix64 got = sum(1, as_matrix64(trial.value), rate * decay - 1, before);
      worst = std::max(worst, norm(sum(1 / rate, got, -1, want)) / norm(want));
    }
    const double worst_m = norm(sum(1, as_matrix64(trial.m), -1, reference.m)) / norm(reference.m);
    CAPTURE(shape.to_string(), nesterov, scale, worst, worst_m);
    CHECK(worst < 5e-6);
    CHECK(worst_m < 2e-6);
  }
}

TEST_CASE("Muon: a step by hand") {
  // A row's only singular value is its norm: after normalisation 1, then five times a + b + c and the like.
  Trial trial({1, 2}, {.momentum = 0.5, .nesterov = false});
  trial.value = Owned<float>({1, 2}, {1, 2});
  trial.gradient = Owned<float>({1, 2}, {6, 8});
  double length = 1;
  for (int i = 0; i < 5; ++i) length = 3.4445 * length - 4.7750 * std::pow(length, 3) + 2.0315 * std::pow(length, 5);
  trial.update(0.5, 0.25);
  CHECK(trial.m.values() == std::vector<float>{3, 4});
  CHECK(trial.value.value(0) == Approx(0.875 - 0.5 * 0.6 * length).epsilon(1e-6));
  CHECK(trial.value.value(1) == Approx(1.75 - 0.5 * 0.8 * length).epsilon(1e-6));
}

TEST_CASE("Muon: scales by the shape of the weight") {
  CHECK(muon_scale_factor(MuonScale::spectral, 400, 100) == 2);
  CHECK(muon_scale_factor(MuonScale::spectral, 100, 400) == 1);
  CHECK(muon_scale_factor(MuonScale::match_adam_rms, 400, 100) == Approx(4));
  CHECK(muon_scale_factor(MuonScale::match_adam_rms, 100, 400) == Approx(4));
}

TEST_CASE("Muon: a skipped update leaves all bits, whatever the gradient") {
  for (const Shape& shape : kShapes) {
    CAPTURE(shape.to_string());
    Trial trial(shape, {});
    trial.m = random_tensor(shape, 3);
    trial.gradient = Owned<float>(shape, std::numeric_limits<float>::quiet_NaN());
    trial.clip_factor[0] = std::numeric_limits<float>::quiet_NaN();
    trial.skip[0] = 1;
    const Owned<float> value = trial.value, m = trial.m;
    trial.update(0.5, 0.1);
    CHECK(trial.value == value);
    CHECK(trial.m == m);
  }
}

TEST_CASE("Muon: a gradient of zero changes nothing but by decay") {
  for (const Shape& shape : kShapes) {
    CAPTURE(shape.to_string());
    Trial trial(shape, {});
    trial.gradient = Owned<float>(shape);
    const Owned<float> value = trial.value;
    trial.update(0.5);
    CHECK(trial.value == value);
    CHECK(trial.m == Owned<float>(shape));
    trial.update(0.5, 0.25);
    std::int64_t wrong = 0;
    for (std::int64_t i = 0; i < value.elements(); ++i) wrong += trial.value[i] != value[i] * 0.875f;
    CHECK(wrong == 0);
  }
}

TEST_CASE("Newton-Schulz: singular vectors stay, singular values come near 1") {
  constexpr std::int64_t small = 24, large = 60;
  const Matrix64 left = orthonormal_rows(small, small, 1), right = orthonormal_rows(small, large, 2);
  Matrix64 diagonal{small, small};
  double squares = 0;
  for (std::int64_t i = 0; i < small; ++i) {
    diagonal.at(i, i) = i == 0 ? 0 : 50 * std::pow(0.8, static_cast<double>(i));
    squares += diagonal.at(i, i) * diagonal.at(i, i);
  }
  const Matrix64 wide = product(product(transposed(left), diagonal), right);
  for (const bool tall : {false, true}) {
    CAPTURE(tall);
    const Matrix64 g = tall ? transposed(wide) : wide;
    Owned<float> x({g.rows, g.columns}), y({g.rows, g.columns});
    for (std::int64_t i = 0; i < x.elements(); ++i) x[i] = static_cast<float>(g.elements[static_cast<std::size_t>(i)]);
    const Backend backend = make_test_backend();
    const Buffer memory(*backend.device, 1 << 16);
    Arena scratch("test", memory);
    orthogonalize(*backend.ops, scratch, x, y);
    const Matrix64 orthogonal = tall ? transposed(as_matrix64(y)) : as_matrix64(y);
    const Matrix64 turned = product(product(left, orthogonal), transposed(right));
    double worst = 0;
    for (std::int64_t i = 0; i < small; ++i) {
      for (std::int64_t j = 0; j < small; ++j) {
        double want = i == j ? diagonal.at(i, i) / std::sqrt(squares) : 0;
        const bool converges = want > 0.01;
        for (int step = 0; step < 5; ++step) {
          want = 3.4445 * want - 4.7750 * std::pow(want, 3) + 2.0315 * std::pow(want, 5);
        }
        worst = std::max(worst, std::abs(turned.at(i, j) - want));
        if (converges) CHECK((turned.at(i, j) > 0.68 && turned.at(i, j) < 1.14));
      }
    }
    CAPTURE(worst);
    CHECK(worst < 2e-5);
  }
}

TEST_CASE("Muon: the same bits at any place and with two threads") {
  const Shape shape{48, 400};  // elements enough for two threads, products for one
  const auto updated = [&](int threads, std::int64_t place) {
    Trial trial(shape, {}, make_cpu_backend(threads));
    const std::int64_t elements = shape.elements();
    Owned<float> value({elements + place}), gradient({elements + place}), m({elements + place});
    std::copy(trial.value.values().begin(), trial.value.values().end(), &value[place]);
    std::copy(trial.gradient.values().begin(), trial.gradient.values().end(), &gradient[place]);
    const auto at_place = [&](Owned<float>& x) { return x.tensor().slice(0, place, elements).view(shape); };
    for (int step = 0; step < 3; ++step) {
      MuonUpdate{at_place(value), at_place(gradient), at_place(m), trial.clip_factor, trial.skip, 0.1, 0.1}.run(
          *trial.backend.ops, trial.scratch, {});
    }
    return std::vector<float>(&value[place], &value[place] + elements);
  };
  const std::vector<float> want = updated(1, 0);
  CHECK(updated(1, 16) == want);
  CHECK(updated(1, 3) == want);
  CHECK(updated(2, 0) == want);
}

TEST_CASE("Muon: the first and the last act may be done in parts") {
  const Shape shape{6, 10};
  Trial whole(shape, {.momentum = 0.8});
  whole.update(0.5, 0.1);
  Trial parts(shape, {.momentum = 0.8});
  Ops& ops = *parts.backend.ops;
  Owned<float> direction(shape), update(shape);
  const auto part_of = [&](Owned<float>& x, std::int64_t first, std::int64_t count) {
    return x.tensor().view({60}).slice(0, first, count);
  };
  for (const auto& [first, count] : {std::pair(0, 13), std::pair(13, 47)}) {
    find_muon_direction(ops, parts.scratch, {.momentum = 0.8},
                        {.gradient = part_of(parts.gradient, first, count),
                         .m = part_of(parts.m, first, count),
                         .clip_factor = parts.clip_factor,
                         .skip = parts.skip},
                        part_of(direction, first, count));
  }
  orthogonalize(ops, parts.scratch, direction, update);
  for (const auto& [first, count] : {std::pair(0, 29), std::pair(29, 31)}) {
    apply_muon(ops, parts.scratch, 1,
               {.value = part_of(parts.value, first, count),
                .update = part_of(update, first, count),
                .skip = parts.skip,
                .learning_rate = 0.5f,
                .weight_decay = 0.1f});
  }
  CHECK(parts.value == whole.value);
  CHECK(parts.m == whole.m);
}

TEST_CASE("Muon: without momentum it follows the gradient and keeps nothing") {
  const Shape shape{6, 10};
  for (const bool nesterov : {false, true}) {
    Trial with(shape, {.momentum = 0, .nesterov = nesterov});
    with.update(0.5);
    Trial without(shape, {.momentum = 0, .nesterov = nesterov});
    MuonUpdate{without.value, without.gradient, {}, without.clip_factor, without.skip, 0.5, 0}.run(
        *without.backend.ops, without.scratch, without.settings);
    CHECK(without.value == with.value);
  }
}

TEST_CASE("Muon: scratch is given back") {
  for (const Shape& shape : kShapes) {
    CAPTURE(shape.to_string());
    Trial trial(shape, {});
    trial.update(0.5);
    CHECK(trial.scratch.used() == 0);
  }
}

TEST_CASE("Newton-Schulz: operations are those of its products") {
  for (const Shape& shape : kShapes) {
    CAPTURE(shape.to_string());
    CountingOps ops;
    Trial trial(shape, {});
    MuonUpdate{trial.value, trial.gradient, trial.m, trial.clip_factor, trial.skip, 0.1, 0}.run(ops, trial.scratch, {});
    const auto small = static_cast<double>(std::min(shape[0], shape[1]));
    const auto large = static_cast<double>(std::max(shape[0], shape[1]));
    CHECK(ops.matmul_flops() == 5 * (4 * small * small * large + 2 * small * small * small));
  }
}

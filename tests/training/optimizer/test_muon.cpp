// Muon's update of whole matrices against an fp64 reference in the words of its publication: the matrix is transposed
// where it is tall, products are sums over elements.
#include "training/optimizer/muon.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "backend/ops/backends.h"
#include "backend/ops/counting_ops.h"
#include "support/catch.h"
#include "support/require_error.h"
#include "support/tensors.h"
#include "training/optimizer/newton_schulz.h"

using namespace megatron;
using namespace megatron::test;

namespace {

struct Matrix64 {
  std::int64_t rows, columns;
  std::vector<double> elements = std::vector<double>(static_cast<std::size_t>(rows * columns));

  double& at(std::int64_t i, std::int64_t j) { return elements[static_cast<std::size_t>(i * columns + j)]; }
  double at(std::int64_t i, std::int64_t j) const { return elements[static_cast<std::size_t>(i * columns + j)]; }
};

Matrix64 as_matrix64(const Owned<float>& x) {
  return {x.shape()[0], x.shape()[1], as_doubles(x)};
}

Matrix64 transposed(const Matrix64& x) {
  Matrix64 y{x.columns, x.rows};
  for (std::int64_t i = 0; i < x.rows; ++i) {
    for (std::int64_t j = 0; j < x.columns; ++j) y.at(j, i) = x.at(i, j);
  }
  return y;
}

Matrix64 product(const Matrix64& a, const Matrix64& b) {
  Matrix64 c{a.rows, b.columns};
  for (std::int64_t i = 0; i < a.rows; ++i) {
    for (std::int64_t k = 0; k < a.columns; ++k) {
      for (std::int64_t j = 0; j < b.columns; ++j) c.at(i, j) += a.at(i, k) * b.at(k, j);
    }
  }
  return c;
}

Matrix64 sum(double p, const Matrix64& x, double q, const Matrix64& y) {
  Matrix64 z = x;
  for (std::size_t i = 0; i < z.elements.size(); ++i) z.elements[i] = p * x.elements[i] + q * y.elements[i];
  return z;
}

double norm(const Matrix64& x) {
  double squares = 0;
  for (const double element : x.elements) squares += element * element;
  return std::sqrt(squares);
}

Matrix64 zeroth_power(const Matrix64& g) {
  if (g.rows > g.columns) return transposed(zeroth_power(transposed(g)));
  Matrix64 x = sum(1 / (norm(g) + 1e-7), g, 0, g);
  for (int i = 0; i < 5; ++i) {
    const Matrix64 a = product(x, transposed(x));
    x = sum(3.4445, x, 1, product(sum(-4.7750, a, 2.0315, product(a, a)), x));
  }
  return x;
}

struct Reference {
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

/// A matrix with its state, a clip factor of 1 and steps that are not skipped, and scratch of the least size that holds
/// NaN.
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
        memory(*backend.device, muon_workspace_bytes(shape[0], shape[1])),
        scratch("test", memory) {
    const auto floats = static_cast<std::int64_t>(memory.bytes() / sizeof(float));
    backend.ops->fill(memory.tensor({floats}, DType::f32), std::numeric_limits<double>::quiet_NaN());
  }

  void update(double rate, double decay = 0) {
    update_muon(*backend.ops, scratch, settings,
                {.clip_factor = clip_factor, .skip = skip, .learning_rate = rate, .weight_decay = decay},
                {.value = value, .gradient = gradient, .m = m});
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
    Reference reference{settings, {shape[0], shape[1]}};
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

TEST_CASE("Muon: scales by name and by the shape of the weight") {
  CHECK(muon_scale("spectral") == MuonScale::spectral);
  CHECK(muon_scale("match_adam_rms") == MuonScale::match_adam_rms);
  require_error(ErrorKind::configuration, {"\"adam\"", "\"spectral\" or \"match_adam_rms\""},
                [] { (void)muon_scale("adam"); });
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
      update_muon(*trial.backend.ops, trial.scratch, {}, {trial.clip_factor, trial.skip, 0.1, 0.1},
                  {at_place(value), at_place(gradient), at_place(m)});
    }
    return std::vector<float>(&value[place], &value[place] + elements);
  };
  const std::vector<float> want = updated(1, 0);
  CHECK(updated(1, 16) == want);
  CHECK(updated(1, 3) == want);
  CHECK(updated(2, 0) == want);
}

TEST_CASE("Muon: the workspace is exactly as said, and given back") {
  for (const Shape& shape : kShapes) {
    CAPTURE(shape.to_string());
    Trial trial(shape, {});
    trial.update(0.5);
    CHECK(trial.scratch.used() == 0);
    CHECK(trial.scratch.high_water() == trial.memory.bytes());
  }
}

TEST_CASE("Muon: operations are those of its products") {
  for (const Shape& shape : kShapes) {
    CAPTURE(shape.to_string());
    CountingOps ops;
    Trial trial(shape, {});
    update_muon(ops, trial.scratch, {}, {.clip_factor = trial.clip_factor, .skip = trial.skip},
                {.value = trial.value, .gradient = trial.gradient, .m = trial.m});
    CHECK(muon_flops(shape[0], shape[1]) == ops.matmul_flops());
  }
  CHECK(muon_flops(2, 3) == 5 * (4 * 4 * 3 + 2 * 8));
  CHECK(muon_flops(3, 2) == muon_flops(2, 3));
}

TEST_CASE("Muon: tensors that are no matrix, or of other shapes, are refused") {
  Trial trial({4, 6}, {});
  Owned<float> other({6, 4});
  const auto update = [&](Tensor value, ConstTensor gradient, Tensor m) {
    update_muon(*trial.backend.ops, trial.scratch, {}, {.clip_factor = trial.clip_factor, .skip = trial.skip},
                {.value = value, .gradient = gradient, .m = m});
  };
  const std::vector<std::string> message = {"Muon updates whole matrices"};
  require_error(ErrorKind::internal, message, [&] { update(trial.value, other, trial.m); });
  require_error(ErrorKind::internal, message, [&] { update(trial.value, trial.gradient, other); });
  require_error(ErrorKind::internal, message, [&] {
    update(trial.value.tensor().view({24}), trial.gradient.tensor().view({24}), trial.m.tensor().view({24}));
  });
}

#include <algorithm>
#include <catch2/catch.hpp>

#include "ops/device.h"
#include "ops/ops.h"
#include "support/tensors.h"
#include "support/test_backend.h"

using namespace megatron;
using namespace megatron::test;

namespace {

constexpr double kEpsilon = 1e-5;
const std::pair<std::int64_t, std::int64_t> kSizes[] = {{1, 2}, {7, 33}, {33, 7}, {4, 1000}};

struct NormReference {
  std::vector<double> y, mean, rstd;
};

NormReference reference(const std::vector<double>& x, const std::vector<double>& gamma,
                        const std::vector<double>& beta) {
  NormReference result;
  const std::size_t h = gamma.size();
  for (std::size_t row = 0; row < x.size() / h; ++row) {
    double mean = 0, variance = 0;
    for (std::size_t j = 0; j < h; ++j) mean += x[row * h + j] / static_cast<double>(h);
    for (std::size_t j = 0; j < h; ++j) {
      variance += (x[row * h + j] - mean) * (x[row * h + j] - mean) / static_cast<double>(h);
    }
    const double rstd = 1 / std::sqrt(variance + kEpsilon);
    for (std::size_t j = 0; j < h; ++j) result.y.push_back((x[row * h + j] - mean) * rstd * gamma[j] + beta[j]);
    result.mean.push_back(mean);
    result.rstd.push_back(rstd);
  }
  return result;
}

/// sum of dy · layer_norm(x), whose gradients are the verb's.
double weighted_output(const std::vector<double>& dy, const NormReference& norm) {
  double sum = 0;
  for (std::size_t i = 0; i < dy.size(); ++i) sum += dy[i] * norm.y[i];
  return sum;
}

}  // namespace

TEMPLATE_TEST_CASE("layer_norm_forward against fp64", "", float, BFloat16, Float16) {
  using T = TestType;
  const Backend backend = make_test_backend();
  for (const auto& [n, h] : kSizes) {
    for (const double offset : {0.0, 100.0}) {
      CAPTURE(n, h, offset);
      const Owned<T> x = random_tensor<T>({n, h}, 1, 2, offset), gamma = random_tensor<T>({h}, 2, 1, 1),
                     beta = random_tensor<T>({h}, 3);
      Owned<T> y = random_tensor<T>({n, h}, 4);
      Owned<float> mean({n}), rstd({n});
      backend.ops->layer_norm_forward({.x = x, .gamma = gamma, .beta = beta, .y = y, .mean = mean, .rstd = rstd});
      const NormReference want = reference(as_doubles(x), as_doubles(gamma), as_doubles(beta));
      // A mean near 100 is rounded to 4e-6, and rstd multiplies that.
      const double largest_rstd = *std::max_element(want.rstd.begin(), want.rstd.end());
      CHECK(difference(y, want.y, 1e-6 + (offset == 0 ? 0 : 8e-6 * largest_rstd)) == "");
      CHECK(difference(mean, want.mean, 1e-6, 1) == "");
      CHECK(difference(rstd, want.rstd, 1e-6) == "");
    }
  }
}

TEST_CASE("a constant row normalises to beta") {
  const Backend backend = make_test_backend();
  const Owned<float> x({2, 33}, 3.0f), gamma({33}, 2.0f), beta = random_tensor({33}, 3);
  Owned<float> y({2, 33}), mean({2}), rstd({2});
  backend.ops->layer_norm_forward({.x = x, .gamma = gamma, .beta = beta, .y = y, .mean = mean, .rstd = rstd});
  for (std::int64_t i = 0; i < 66; ++i) REQUIRE(y[i] == beta[i % 33]);
  CHECK(static_cast<double>(rstd[0]) == Approx(1 / std::sqrt(kEpsilon)));
}

TEMPLATE_TEST_CASE("layer_norm_backward against finite differences: dx is set, dgamma and dbeta are added to", "",
                   float, BFloat16, Float16) {
  using T = TestType;
  const Backend backend = make_test_backend();
  for (const auto& [n, h] : {std::pair<std::int64_t, std::int64_t>{1, 2}, {7, 33}, {33, 7}, {2, 200}}) {
    CAPTURE(n, h);
    const Owned<T> x = random_tensor<T>({n, h}, 1, 2), gamma = random_tensor<T>({h}, 2, 1, 1),
                   beta = random_tensor<T>({h}, 3);
    const Owned<T> dy = random_tensor<T>({n, h}, 4), bypass = random_tensor<T>({n, h}, 5);
    Owned<T> y({n, h});
    Owned<float> mean({n}), rstd({n});
    backend.ops->layer_norm_forward({.x = x, .gamma = gamma, .beta = beta, .y = y, .mean = mean, .rstd = rstd});

    const std::vector<double> x64 = as_doubles(x), gamma64 = as_doubles(gamma), beta64 = as_doubles(beta),
                              dy64 = as_doubles(dy);
    const auto want_dx = numerical_gradient(
        [&](const std::vector<double>& v) { return weighted_output(dy64, reference(v, gamma64, beta64)); }, x64);
    auto want_dgamma = numerical_gradient(
        [&](const std::vector<double>& v) { return weighted_output(dy64, reference(x64, v, beta64)); }, gamma64);
    auto want_dbeta = numerical_gradient(
        [&](const std::vector<double>& v) { return weighted_output(dy64, reference(x64, gamma64, v)); }, beta64);

    Owned<T> dx = random_tensor<T>({n, h}, 6);
    Owned<float> dgamma({h}, 1.0f), dbeta({h}, -1.0f);
    LayerNormBackwardArgs args{.dy = dy,
                               .x = x,
                               .gamma = gamma,
                               .mean = mean,
                               .rstd = rstd,
                               .residual_gradient = {},
                               .dx = dx,
                               .dgamma = dgamma,
                               .dbeta = dbeta};
    backend.ops->layer_norm_backward(args);
    CHECK(difference(dx, want_dx, 5e-6) == "");
    args.residual_gradient = bypass;
    backend.ops->layer_norm_backward(args);
    std::vector<double> want_sum = want_dx;
    for (std::size_t i = 0; i < want_sum.size(); ++i) want_sum[i] += bypass.value(static_cast<std::int64_t>(i));
    CHECK(difference(dx, want_sum, 5e-6) == "");
    for (double& g : want_dgamma) g = 1 + 2 * g;  // two calls
    for (double& g : want_dbeta) g = -1 + 2 * g;
    CHECK(difference(dgamma, want_dgamma, 5e-6) == "");
    CHECK(difference(dbeta, want_dbeta, 5e-6) == "");

    Owned<T> over_dy = dy, over_bypass = bypass;
    Owned<float> ignored1({h}), ignored2({h});
    args.dgamma = ignored1, args.dbeta = ignored2;
    args.dy = over_dy, args.dx = over_dy;
    backend.ops->layer_norm_backward(args);
    CHECK(over_dy == dx);
    args.dy = dy, args.residual_gradient = over_bypass, args.dx = over_bypass;
    backend.ops->layer_norm_backward(args);
    CHECK(over_bypass == dx);
  }
}

namespace {

struct NormGradients {
  std::vector<double> dx, dgamma, dbeta;
};

NormGradients reference_gradients(const std::vector<double>& dy, const std::vector<double>& x,
                                  const std::vector<double>& gamma) {
  const std::size_t h = gamma.size();
  const NormReference norm = reference(x, gamma, std::vector<double>(h));
  NormGradients result{std::vector<double>(x.size()), std::vector<double>(h), std::vector<double>(h)};
  for (std::size_t row = 0; row < x.size() / h; ++row) {
    double mean_gradient = 0, mean_product = 0;
    const auto normal = [&](std::size_t j) { return (x[row * h + j] - norm.mean[row]) * norm.rstd[row]; };
    for (std::size_t j = 0; j < h; ++j) {
      const double gradient = dy[row * h + j];
      mean_gradient += gradient * gamma[j] / static_cast<double>(h);
      mean_product += gradient * gamma[j] * normal(j) / static_cast<double>(h);
      result.dgamma[j] += gradient * normal(j);
      result.dbeta[j] += gradient;
    }
    for (std::size_t j = 0; j < h; ++j) {
      result.dx[row * h + j] = norm.rstd[row] * (dy[row * h + j] * gamma[j] - mean_gradient - normal(j) * mean_product);
    }
  }
  return result;
}

}  // namespace

TEMPLATE_TEST_CASE("layer norm of the sizes of models, aligned and not, against fp64", "", float, BFloat16, Float16) {
  using T = TestType;
  const Backend backend = make_test_backend();
  // Of every way that a backend may take: a row in a warp's registers, in a block's, in nobody's; more rows than are
  // worked on together.
  for (const auto& [n, h] : {std::pair<std::int64_t, std::int64_t>{150, 64},
                             {70, 256},
                             {9, 512},
                             {70, 768},
                             {40, 1024},
                             {3, 1600},
                             {3, 2048},
                             {2, 4096},
                             {3, 6144},
                             {2, 8192},
                             {2, 13000}}) {
    for (const std::int64_t offset : {0, 1}) {  // elements that the tensors lie off their memory's alignment
      CAPTURE(n, h, offset);
      const auto view = [&](Owned<T>& memory) { return memory.tensor().slice(0, offset, n * h).view({n, h}); };
      const Owned<T> x = random_tensor<T>({n, h}, 1, 2), dy = random_tensor<T>({n, h}, 4),
                     bypass = random_tensor<T>({n, h}, 5), gamma = random_tensor<T>({h}, 2, 1, 1),
                     beta = random_tensor<T>({h}, 3);
      const auto moved = [&](const Owned<T>& tensor) {
        Owned<T> memory({n * h + 1});
        for (std::int64_t i = 0; i < n * h; ++i) memory[offset + i] = tensor[i];
        return memory;
      };
      const auto moved_back = [&](const Owned<T>& memory) {
        Owned<T> tensor({n, h});
        for (std::int64_t i = 0; i < n * h; ++i) tensor[i] = memory[offset + i];
        return tensor;
      };
      Owned<T> x_memory = moved(x), dy_memory = moved(dy), bypass_memory = moved(bypass), y({n * h + 1}),
               dx({n * h + 1});
      Owned<float> mean({n}), rstd({n}), dgamma({h}, 1.0f), dbeta({h}, -1.0f);
      backend.ops->layer_norm_forward(
          {.x = view(x_memory), .gamma = gamma, .beta = beta, .y = view(y), .mean = mean, .rstd = rstd});
      backend.ops->layer_norm_backward({.dy = view(dy_memory),
                                        .x = view(x_memory),
                                        .gamma = gamma,
                                        .mean = mean,
                                        .rstd = rstd,
                                        .residual_gradient = view(bypass_memory),
                                        .dx = view(dx),
                                        .dgamma = dgamma,
                                        .dbeta = dbeta});
      const NormReference want = reference(as_doubles(x), as_doubles(gamma), as_doubles(beta));
      CHECK(difference(moved_back(y), want.y, 1e-6) == "");
      CHECK(difference(mean, want.mean, 1e-6, 1) == "");
      CHECK(difference(rstd, want.rstd, 1e-6) == "");
      NormGradients gradients = reference_gradients(as_doubles(dy), as_doubles(x), as_doubles(gamma));
      for (std::int64_t i = 0; i < n * h; ++i) gradients.dx[static_cast<std::size_t>(i)] += bypass.value(i);
      for (double& g : gradients.dgamma) g += 1;
      for (double& g : gradients.dbeta) g -= 1;
      CHECK(difference(moved_back(dx), gradients.dx, 2e-6) == "");
      CHECK(difference(dgamma, gradients.dgamma, 2e-6) == "");
      CHECK(difference(dbeta, gradients.dbeta, 2e-6) == "");
    }
  }
}

#include <algorithm>
#include <functional>
#include <iterator>

#include "backend/ops/device.h"
#include "backend/ops/ops.h"
#include "support/catch.h"
#include "support/tensors.h"
#include "support/test_backend.h"

using namespace megatron;
using namespace megatron::test;

namespace {

constexpr double kEpsilon = 1e-5;
const std::pair<std::int64_t, std::int64_t> kNormSizes[] = {{1, 2}, {7, 33}, {33, 7}, {4, 1000}};

/// LayerNorm and RMSNorm, with and without a beta.
struct Form {
  const char* name;
  bool centered, with_beta;

  /// A tensor that this form has, or none.
  template <class T>
  Tensor mean(Owned<T>& tensor) const {
    return centered ? tensor.tensor() : Tensor();
  }
  Normalization kind() const { return centered ? Normalization::layer : Normalization::root_mean_square; }
  template <class T>
  Tensor beta(Owned<T>& tensor) const {
    return with_beta ? tensor.tensor() : Tensor();
  }
};
const Form kForms[] = {{"LayerNorm", true, true},
                       {"LayerNorm without beta", true, false},
                       {"RMSNorm", false, false},
                       {"RMSNorm with beta", false, true}};

struct NormReference {
  std::vector<double> y, mean, rstd;
};

NormReference reference(const Form& form, const std::vector<double>& x, const std::vector<double>& gamma,
                        const std::vector<double>& beta) {
  NormReference result;
  const std::size_t h = gamma.size();
  for (std::size_t row = 0; row < x.size() / h; ++row) {
    double mean = 0, variance = 0;
    for (std::size_t j = 0; j < h && form.centered; ++j) mean += x[row * h + j] / static_cast<double>(h);
    for (std::size_t j = 0; j < h; ++j) {
      variance += (x[row * h + j] - mean) * (x[row * h + j] - mean) / static_cast<double>(h);
    }
    const double rstd = 1 / std::sqrt(variance + kEpsilon);
    for (std::size_t j = 0; j < h; ++j) {
      result.y.push_back((x[row * h + j] - mean) * rstd * gamma[j] + (form.with_beta ? beta[j] : 0));
    }
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
  for (const Form& form : kForms) {
    for (const auto& [n, h] : kNormSizes) {
      for (const double offset : {0.0, 100.0}) {
        CAPTURE(form.name, n, h, offset);
        const Owned<T> x = random_tensor<T>({n, h}, 1, 2, offset), gamma = random_tensor<T>({h}, 2, 1, 1);
        Owned<T> beta = random_tensor<T>({h}, 3), y = random_tensor<T>({n, h}, 4), in_place = x;
        Owned<float> mean({n}, -7.0f), rstd({n});
        LayerNormForwardArgs args{.x = x,
                                  .gamma = gamma,
                                  .beta = form.beta(beta),
                                  .y = y,
                                  .mean = form.mean(mean),
                                  .rstd = rstd,
                                  .kind = form.kind()};
        backend.ops->layer_norm_forward(args);
        const NormReference want = reference(form, as_doubles(x), as_doubles(gamma), as_doubles(beta));
        // A mean near 100 is rounded to 4e-6, and rstd multiplies that.
        const double largest_rstd = *std::max_element(want.rstd.begin(), want.rstd.end());
        CHECK(difference(y, want.y, 1e-6 + (offset == 0 ? 0 : 8e-6 * largest_rstd)) == "");
        CHECK(difference(mean, form.centered ? want.mean : std::vector<double>(want.mean.size(), -7), 1e-6, 1) == "");
        CHECK(difference(rstd, want.rstd, 1e-6) == "");
        args.x = in_place, args.y = in_place;
        backend.ops->layer_norm_forward(args);
        CHECK(in_place == y);
      }
    }
  }
}

TEST_CASE("layer norm: a centered kind without a mean is our own error") {
  const Backend backend = make_test_backend();
  const Owned<float> x({2, 8}, 3.0f), gamma({8}, 2.0f);
  Owned<float> y({2, 8}), rstd({2}), dgamma({8});
  const auto fails = [](const auto& call) {
    try {
      call();
    } catch (const Error& error) {
      return error.kind() == ErrorKind::internal;
    }
    return false;
  };
  CHECK(fails([&] {
    backend.ops->layer_norm_forward({.x = x, .gamma = gamma, .beta = {}, .y = y, .mean = {}, .rstd = rstd});
  }));
  CHECK(fails([&] {
    backend.ops->layer_norm_backward({.dy = x,
                                      .x = x,
                                      .gamma = gamma,
                                      .mean = {},
                                      .rstd = rstd,
                                      .residual_gradient = {},
                                      .dx = y,
                                      .dgamma = dgamma,
                                      .dbeta = {}});
  }));
}

TEST_CASE("a constant row normalises to beta") {
  const Backend backend = make_test_backend();
  const Owned<float> x({2, 33}, 3.0f), gamma({33}, 2.0f), beta = random_tensor({33}, 3);
  Owned<float> y({2, 33}), mean({2}), rstd({2});
  backend.ops->layer_norm_forward({.x = x, .gamma = gamma, .beta = beta, .y = y, .mean = mean, .rstd = rstd});
  for (std::int64_t i = 0; i < 66; ++i) REQUIRE(y[i] == beta[i % 33]);
  CHECK(static_cast<double>(rstd[0]) == Approx(1 / std::sqrt(kEpsilon)));
}

TEMPLATE_TEST_CASE("layer_norm_backward: agrees with finite differences and adds to dgamma", "", float, BFloat16,
                   Float16) {
  using T = TestType;
  const Backend backend = make_test_backend();
  const Form& form = GENERATE(from_range(std::begin(kForms), std::end(kForms)));
  for (const auto& [n, h] : {std::pair<std::int64_t, std::int64_t>{1, 2}, {7, 33}, {33, 7}, {2, 200}}) {
    CAPTURE(form.name, n, h);
    const Owned<T> x = random_tensor<T>({n, h}, 1, 2), gamma = random_tensor<T>({h}, 2, 1, 1);
    const Owned<T> dy = random_tensor<T>({n, h}, 4), bypass = random_tensor<T>({n, h}, 5);
    Owned<T> beta = random_tensor<T>({h}, 3), y({n, h});
    Owned<float> mean({n}), rstd({n});
    backend.ops->layer_norm_forward({.x = x,
                                     .gamma = gamma,
                                     .beta = form.beta(beta),
                                     .y = y,
                                     .mean = form.mean(mean),
                                     .rstd = rstd,
                                     .kind = form.kind()});

    const std::vector<double> x64 = as_doubles(x), gamma64 = as_doubles(gamma), beta64 = as_doubles(beta),
                              dy64 = as_doubles(dy);
    const auto want_dx = numerical_gradient(
        [&](const std::vector<double>& v) { return weighted_output(dy64, reference(form, v, gamma64, beta64)); }, x64);
    auto want_dgamma = numerical_gradient(
        [&](const std::vector<double>& v) { return weighted_output(dy64, reference(form, x64, v, beta64)); }, gamma64);
    auto want_dbeta = numerical_gradient(
        [&](const std::vector<double>& v) { return weighted_output(dy64, reference(form, x64, gamma64, v)); }, beta64);

    Owned<T> dx = random_tensor<T>({n, h}, 6);
    Owned<float> dgamma({h}, 1.0f), dbeta({h}, -1.0f);
    LayerNormBackwardArgs args{.dy = dy,
                               .x = x,
                               .gamma = gamma,
                               .mean = form.mean(mean),
                               .rstd = rstd,
                               .residual_gradient = {},
                               .dx = dx,
                               .dgamma = dgamma,
                               .dbeta = form.beta(dbeta),
                               .kind = form.kind()};
    backend.ops->layer_norm_backward(args);
    CHECK(difference(dx, want_dx, 5e-6) == "");
    args.residual_gradient = bypass;
    backend.ops->layer_norm_backward(args);
    std::vector<double> want_sum = want_dx;
    for (std::size_t i = 0; i < want_sum.size(); ++i) want_sum[i] += bypass.value(static_cast<std::int64_t>(i));
    CHECK(difference(dx, want_sum, 5e-6) == "");
    for (double& g : want_dgamma) g = 1 + 2 * g;  // two calls
    for (double& g : want_dbeta) g = -1 + 2 * g;  // left as it was by a norm without beta
    CHECK(difference(dgamma, want_dgamma, 5e-6) == "");
    CHECK(difference(dbeta, want_dbeta, 5e-6) == "");

    Owned<T> over_dy = dy, over_bypass = bypass;
    Owned<float> ignored1({h}), ignored2({h});
    args.dgamma = ignored1, args.dbeta = form.beta(ignored2);
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

NormGradients reference_gradients(const Form& form, const std::vector<double>& dy, const std::vector<double>& x,
                                  const std::vector<double>& gamma) {
  const std::size_t h = gamma.size();
  const NormReference norm = reference(form, x, gamma, std::vector<double>(h));
  NormGradients result{std::vector<double>(x.size()), std::vector<double>(h), std::vector<double>(h)};
  for (std::size_t row = 0; row < x.size() / h; ++row) {
    double mean_gradient = 0, mean_product = 0;
    const auto normal = [&](std::size_t j) { return (x[row * h + j] - norm.mean[row]) * norm.rstd[row]; };
    for (std::size_t j = 0; j < h; ++j) {
      const double gradient = dy[row * h + j];
      if (form.centered) mean_gradient += gradient * gamma[j] / static_cast<double>(h);
      mean_product += gradient * gamma[j] * normal(j) / static_cast<double>(h);
      result.dgamma[j] += gradient * normal(j);
      if (form.with_beta) result.dbeta[j] += gradient;
    }
    for (std::size_t j = 0; j < h; ++j) {
      result.dx[row * h + j] = norm.rstd[row] * (dy[row * h + j] * gamma[j] - mean_gradient - normal(j) * mean_product);
    }
  }
  return result;
}

/// Rows of a call that lie in memory as `place` says, forward and backward, against the fp64 reference. `place` gives
/// the view [..., h] of a memory of `elements`, through which nothing else may be written.
template <class T>
void check_norm(Ops& ops, const Form& form, Shape shape, std::int64_t elements,
                const std::function<Tensor(Owned<T>&)>& place) {
  const std::int64_t h = shape[shape.rank() - 1], n = shape.elements() / h;
  constexpr float margin = 77;
  const auto each = [&](Owned<T>& memory, const auto& visit) {
    const Tensor view = place(memory);
    std::vector<bool> inside(static_cast<std::size_t>(elements));
    for (std::int64_t i = 0; i < n * h; ++i) {
      std::int64_t at = 0, rest = i;
      for (int dimension = shape.rank() - 1; dimension >= 0; --dimension) {
        at += rest % shape[dimension] * view.stride(dimension);
        rest /= shape[dimension];
      }
      at += view.as<T>() - &memory[0];
      inside[static_cast<std::size_t>(at)] = true;
      visit(i, memory[at]);
    }
    for (std::int64_t i = 0; i < elements; ++i) {
      if (!inside[static_cast<std::size_t>(i)] && wide(memory[i]) != margin) return false;
    }
    return true;
  };
  const auto memory = [&](const Owned<T>& values) {
    Owned<T> result({elements}, narrow<T>(margin));
    each(result, [&](std::int64_t i, T& element) { element = values[i]; });
    return result;
  };
  const auto values_of = [&](Owned<T>& its_memory) {
    Owned<T> values({n, h});
    CHECK(each(its_memory, [&](std::int64_t i, const T& element) { values[i] = element; }));
    return values;
  };
  const Owned<T> x = random_tensor<T>({n, h}, 1, 2), dy = random_tensor<T>({n, h}, 4),
                 bypass = random_tensor<T>({n, h}, 5), gamma = random_tensor<T>({h}, 2, 1, 1);
  Owned<T> beta = random_tensor<T>({h}, 3), x_memory = memory(x), dy_memory = memory(dy),
           bypass_memory = memory(bypass), y = memory(dy), dx = memory(dy);
  Owned<float> mean({n}), rstd({n}), dgamma({h}, 1.0f), dbeta({h}, -1.0f);
  ops.layer_norm_forward({.x = place(x_memory),
                          .gamma = gamma,
                          .beta = form.beta(beta),
                          .y = place(y),
                          .mean = form.mean(mean),
                          .rstd = rstd,
                          .kind = form.kind()});
  ops.layer_norm_backward({.dy = place(dy_memory),
                           .x = place(x_memory),
                           .gamma = gamma,
                           .mean = form.mean(mean),
                           .rstd = rstd,
                           .residual_gradient = place(bypass_memory),
                           .dx = place(dx),
                           .dgamma = dgamma,
                           .dbeta = form.beta(dbeta),
                           .kind = form.kind()});
  const NormReference want = reference(form, as_doubles(x), as_doubles(gamma), as_doubles(beta));
  CHECK(difference(values_of(y), want.y, 1e-6) == "");
  CHECK(difference(mean, want.mean, 1e-6, 1) == "");
  CHECK(difference(rstd, want.rstd, 1e-6) == "");
  NormGradients gradients = reference_gradients(form, as_doubles(dy), as_doubles(x), as_doubles(gamma));
  for (std::int64_t i = 0; i < n * h; ++i) gradients.dx[static_cast<std::size_t>(i)] += bypass.value(i);
  for (double& g : gradients.dgamma) g += 1;
  for (double& g : gradients.dbeta) g -= 1;
  CHECK(difference(values_of(dx), gradients.dx, 2e-6) == "");
  CHECK(difference(dgamma, gradients.dgamma, 2e-6) == "");
  CHECK(difference(dbeta, gradients.dbeta, 2e-6) == "");
}

}  // namespace

TEMPLATE_TEST_CASE("layer norm of the sizes of models, aligned and not, against fp64", "", float, BFloat16, Float16) {
  using T = TestType;
  const Backend backend = make_test_backend();
  // Sizes for every way that a backend may take: a row in a warp's registers, in a block's, in none; more rows than are
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
      for (const Form& form : {kForms[0], kForms[2]}) {
        CAPTURE(form.name, n, h, offset);
        const Shape shape{n, h};
        check_norm<T>(*backend.ops, form, shape, n * h + 1,
                      [&](Owned<T>& memory) { return memory.tensor().slice(0, offset, shape.elements()).view(shape); });
      }
    }
  }
}

TEMPLATE_TEST_CASE("layer norm: over channels of heads inside the query-key-value product", "", float, BFloat16,
                   Float16) {
  using T = TestType;
  const Backend backend = make_test_backend();
  for (const std::int64_t d : {3, 7, 33, 64, 72, 128, 256, 1000}) {
    for (const auto& [s, b] : {std::pair<std::int64_t, std::int64_t>{5, 3}, {1, 2}, {4, 1}}) {
      const Form& form = kForms[(d + s) % 4];
      CAPTURE(form.name, d, s, b);
      constexpr std::int64_t heads = 3, others = 2;
      const Shape product{s, b, (heads + others) * d};
      check_norm<T>(*backend.ops, form, {s, b, heads, d}, product.elements(), [&](Owned<T>& memory) {
        return memory.tensor().view(product).slice(2, d, heads * d).split_last(heads);
      });
    }
  }
}

TEST_CASE("rows of a layer norm that lie at no regular places are our own error") {
  const Backend backend = make_test_backend();
  Owned<float> x({4, 3, 5, 8}), gamma({8}), rstd({2 * 2 * 3});
  const Tensor part = x.tensor().slice(0, 0, 2).slice(1, 0, 2).slice(2, 0, 3);
  try {
    backend.ops->layer_norm_forward({.x = part,
                                     .gamma = gamma,
                                     .beta = {},
                                     .y = part,
                                     .mean = {},
                                     .rstd = rstd,
                                     .kind = Normalization::root_mean_square});
    FAIL_CHECK("nothing was thrown");
  } catch (const Error& error) {
    CHECK(error.kind() == ErrorKind::internal);
  }
}

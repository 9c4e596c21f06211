// Every layer of nn/, dropout on: its backward against finite differences of its forward, what it sets and what it
// adds, and its shares on 2 and 4 tensor ranks, with and without sequence parallelism, against the unsplit layer.
#include "distributed/comm/thread_communicator.h"
#include "models/layers/layer_cases.h"
#include "models/layers/layer_on_ranks.h"
#include "support/catch.h"
#include "support/worst_of.h"

using namespace megatron;
using namespace megatron::test;

namespace {

constexpr double kDropout = 0.2;
// Errors of a directional derivative, relative to the gradient's norm. A gradient that is half a per cent too large is
// seen (the last checks of the test prove it); the float forward's rounding and the step cost up to 1e-4.
constexpr double kDerivativeTolerance = 5e-4;
constexpr int kDirections = 4;

bool recomputes_parts(const LayerCase& layer) {
  return layer.name.find(kRecomputing) != std::string::npos;
}

// ±1: the derivative along it has the gradient's norm as standard deviation, whatever the gradient is.
std::vector<float> direction_of(std::size_t size, std::uint64_t seed) {
  std::vector<float> direction = random_tensor({static_cast<std::int64_t>(size)}, seed).values();
  for (float& element : direction) element = element < 0 ? -1.0f : 1.0f;
  return direction;
}

double product(const std::vector<float>& a, const std::vector<float>& b) {
  double sum = 0;
  for (std::size_t i = 0; i < a.size(); ++i) sum += static_cast<double>(a[i]) * static_cast<double>(b[i]);
  return sum;
}

/// One gradient (of the input, or of a parameter) and derivatives of the forward along random directions.
struct Comparison {
  std::string name;
  std::vector<float> gradient;
  std::vector<std::vector<float>> directions;
  std::vector<double> derivatives;
  double size = 0;

  /// The largest error over the directions if the gradient were `claimed`.
  double error(const std::vector<float>& claimed) const {
    double largest = 0;
    for (std::size_t i = 0; i < directions.size(); ++i) {
      largest = worst_of(largest, std::abs(product(claimed, directions[i]) - derivatives[i]) / size);
    }
    return largest;
  }
};

// The derivative of function(x) along a direction: central differences with two steps, extrapolated (Richardson), so
// that the steps can be so large that the float forward's rounding does not matter.
double derivative_along(const std::function<double(const std::vector<float>&)>& function, const std::vector<float>& x,
                        const std::vector<float>& direction, float largest_step) {
  const auto difference = [&](float step) {
    std::vector<float> ahead = x, behind = x;
    for (std::size_t i = 0; i < x.size(); ++i) {
      ahead[i] += step * direction[i];
      behind[i] -= step * direction[i];
    }
    return (function(ahead) - function(behind)) / (2 * static_cast<double>(step));
  };
  return (4 * difference(largest_step / 2) - difference(largest_step)) / 3;
}

std::vector<Comparison> compare_with_differences(const LayerCase& layer) {
  std::vector<Comparison> comparisons;
  const NamedValues parameters = random_parameters(layer);
  run_as_threads(1, [&](Communicator& world) {
    LayerOnRank rank(layer, world, false);
    const std::vector<float> x = random_input(layer), dy = random_output_gradient(layer);
    // The scalar function whose gradients a backward from dy gives.
    const auto weighted_output = [&](const std::vector<float>& input) {
      const std::vector<double> y = rank.forward(input);
      double sum = layer.out == 0 ? 0 : kLossScale * rank.loss();
      for (std::size_t i = 0; i < y.size(); ++i) sum += y[i] * static_cast<double>(dy[i]);
      return sum;
    };
    const auto compare = [&](const std::string& name, const std::vector<float>& at, const std::vector<float>& gradient,
                             double size, const std::function<double(const std::vector<float>&)>& function) {
      Comparison comparison{name, gradient, {}, {}, size};
      for (int i = 0; i < kDirections; ++i) {
        comparison.directions.push_back(direction_of(at.size(), hash_name(name) + static_cast<std::uint64_t>(i)));
        comparison.derivatives.push_back(derivative_along(function, at, comparison.directions.back(), layer.step));
      }
      comparisons.push_back(std::move(comparison));
    };

    set_values(rank.store(), parameters);
    rank.forward(x);
    const std::vector<float> dx = rank.backward(dy);
    NamedValues gradients;
    for (const Parameter& parameter : rank.store().all()) assemble(parameter, parameter.gradient, gradients);
    if (!x.empty()) compare("x", x, dx, norm_of(dx), weighted_output);
    for (const auto& [name, gradient] : gradients) {
      compare(name, parameters.at(name), gradient, gradient_size(gradients, name),
              [&](const std::vector<float>& value) {
                NamedValues changed = parameters;
                changed[name] = value;
                set_values(rank.store(), changed);
                return weighted_output(x);
              });
    }
  });
  return comparisons;
}

}  // namespace

TEST_CASE("layers: gradients are the finite differences of the forward") {
  for (const LayerCase& layer : layer_cases(kDropout)) {
    if (recomputes_parts(layer)) continue;  // has the bits of another
    for (const Comparison& comparison : compare_with_differences(layer)) {
      INFO(layer.name << ": " << comparison.name);
      CHECK(comparison.error(comparison.gradient) <= kDerivativeTolerance);

      // And the check can fail: a gradient that is left out, has the wrong sign or is 0.5 % too large would not pass.
      if (comparison.name.ends_with("key.bias")) continue;
      const std::vector<float>& right = comparison.gradient;
      const auto scaled = [&](float factor) {
        std::vector<float> wrong = right;
        for (float& element : wrong) element *= factor;
        return comparison.error(wrong);
      };
      CHECK(comparison.size > 0);
      CHECK(scaled(0) > 0.2);
      CHECK(scaled(-1) > 0.4);
      CHECK(scaled(1.005f) > 2 * kDerivativeTolerance);
    }
  }
}

TEST_CASE("a backward adds to parameters' gradients and sets dx") {
  for (const LayerCase& layer : layer_cases(kDropout)) {
    INFO(layer.name);
    const NamedValues parameters = random_parameters(layer);
    std::vector<float> first_dx, second_dx;
    NamedValues once, twice;
    run_as_threads(1, [&](Communicator& world) {
      LayerOnRank rank(layer, world, false);
      set_values(rank.store(), parameters);
      rank.forward(random_input(layer));
      first_dx = rank.backward(random_output_gradient(layer));
      for (const Parameter& parameter : rank.store().all()) assemble(parameter, parameter.gradient, once);
      second_dx = rank.backward(random_output_gradient(layer));
      for (const Parameter& parameter : rank.store().all()) assemble(parameter, parameter.gradient, twice);
    });
    CHECK(first_dx == second_dx);
    for (const auto& [name, gradient] : once) {
      INFO(name);
      std::vector<float> doubled = gradient;
      for (float& element : doubled) element *= 2;
      CHECK(distance(twice.at(name), doubled) * norm_of(doubled) <= 1e-6 * 2 * gradient_size(once, name));
    }
  }
}

TEST_CASE("a backward in place, dx over dy, gives the same bits") {
  const LayerCase layer =
      layer_case(GENERATE("layernorm", "Block", "Recomputed block", "Block with parallel parts",
                          "Block with parallel parts and one norm", "Post-norm block", "Recomputed post-norm block"),
                 kDropout);
  const NamedValues parameters = random_parameters(layer);
  std::vector<float> apart, in_place;
  run_as_threads(1, [&](Communicator& world) {
    LayerOnRank rank(layer, world, false);
    set_values(rank.store(), parameters);
    rank.forward(random_input(layer));
    apart = rank.backward(random_output_gradient(layer));
    in_place = rank.backward(random_output_gradient(layer), /*in_place=*/true);
  });
  CHECK(apart == in_place);
}

TEST_CASE("layers: tensor ranks together compute the unsplit layer") {
  const int ranks = GENERATE(2, 4);
  const bool sequence_parallel = GENERATE(false, true);
  for (const LayerCase& layer : layer_cases(kDropout)) {
    if (recomputes_parts(layer)) continue;
    INFO(layer.name << " on " << ranks << " ranks, sequence parallel: " << sequence_parallel);
    const LayerResults whole = run_on_ranks(layer, 1, false), split = run_on_ranks(layer, ranks, sequence_parallel);
    CHECK(split.copies_agree);
    CHECK(distance(split.y, whole.y) <= 1e-6);
    CHECK(distance(split.dx, whole.dx) <= 2e-6);
    REQUIRE(split.gradients.size() == whole.gradients.size());
    for (const auto& [name, gradient] : whole.gradients) {
      INFO(name);
      const double size = norm_of(gradient) / gradient_size(whole.gradients, name);
      CHECK(size * distance(split.gradients.at(name), gradient) <= 2e-6);
    }
  }
}

TEST_CASE("layers: recomputed parts change no bit of a block") {
  const int ranks = GENERATE(1, 2);
  int compared = 0;
  for (const LayerCase& layer : layer_cases(kDropout)) {
    if (!recomputes_parts(layer)) continue;
    INFO(layer.name << " on " << ranks << " ranks");
    const LayerResults less = run_on_ranks(layer, ranks, ranks > 1);
    const LayerResults all =
        run_on_ranks(layer_case(layer.name.substr(0, layer.name.find(kRecomputing)), kDropout), ranks, ranks > 1);
    CHECK(less.y == all.y);
    CHECK(less.dx == all.dx);
    CHECK(less.gradients == all.gradients);
    ++compared;
  }
  CHECK(compared == 45);
}

TEST_CASE("dropout is on in these tests and off outside training") {
  for (const std::string name : {"Attention", "Block", "Embedding"}) {
    INFO(name);
    const auto output = [&](double dropout, bool training) {
      const LayerCase layer = layer_case(name, dropout);
      std::vector<double> y;
      run_as_threads(1, [&](Communicator& world) {
        LayerOnRank rank(layer, world, false, training);
        y = rank.forward(random_input(layer));
      });
      return y;
    };
    const std::vector<double> dropped = output(kDropout, true), whole = output(0, true);
    double changed = 0, size = 0;
    for (std::size_t i = 0; i < whole.size(); ++i) {
      changed = worst_of(changed, std::abs(dropped[i] - whole[i]));
      size = worst_of(size, std::abs(whole[i]));
    }
    CHECK(changed > 0.01 * size);
    CHECK(changed < 100 * size);
    CHECK(output(kDropout, false) == whole);
  }
}

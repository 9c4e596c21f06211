#include "distributed/parallel/first_sums.h"

#include <algorithm>
#include <limits>
#include <optional>

#include "backend/ops/backends.h"
#include "support/catch.h"
#include "support/tensors.h"

using namespace megatron;
using namespace megatron::test;

namespace {

constexpr float kLeft = 7;  // in all gradients: of the step before

/// A vector [5], matrices [2, 3], [4, 3] and [2, 3] that lie together, a matrix [3, 3], and a vector [4].
class SumsOfStep {
 public:
  SumsOfStep() {
    const auto declare = [&](Shape shape, bool adjacent = false) {
      Parameter parameter(shape.rank() == 1 ? Role::vector : Role::matrix);
      parameter.name = std::to_string(store_.all().size());
      parameter.global_shape = parameter.box.extent = shape;
      parameter.box.offset = shape.rank() == 1 ? Shape{0} : Shape{0, 0};
      parameter.from_products = shape.rank() == 2;
      store_.declare(parameter, adjacent);
    };
    declare({5});
    declare({2, 3});
    declare({4, 3}, true);
    declare({2, 3}, true);
    declare({3, 3});
    declare({4});
    store_.allocate(*backend_.device, DType::f32);
    sums_.emplace(store_);
    begin();
  }

  void begin() {
    backend_.ops->fill(store_.gradients(), kLeft);
    sums_->begin(*backend_.ops);
  }
  bool take(ConstTensor gradient) { return sums_->take(gradient, *backend_.ops); }
  void finish_from(int parameter) { sums_->finish_from(parameter, *backend_.ops); }
  const ParameterStore& store() const { return store_; }
  Tensor gradient(int parameter) const { return store_.at(parameter).gradient; }

  /// The number that all elements of a gradient have.
  float all_of(int parameter) const {
    const Tensor found = gradient(parameter);
    const float* numbers = found.as<float>();
    const bool equal = std::all_of(numbers, numbers + found.elements(), [&](float x) { return x == numbers[0]; });
    return equal ? numbers[0] : std::numeric_limits<float>::quiet_NaN();
  }

 private:
  Backend backend_ = make_cpu_backend();
  ParameterStore store_;
  std::optional<FirstSums> sums_;
};

}  // namespace

TEST_CASE("first sums: all but matrices begin with 0, and are never set") {
  SumsOfStep step;
  for (const int vector : {0, 5}) {
    CHECK(step.all_of(vector) == 0);
    CHECK_FALSE(step.take(step.gradient(vector)));
  }
  for (const int matrix : {1, 2, 3, 4}) CHECK(step.all_of(matrix) == kLeft);
}

TEST_CASE("first sums: a matrix is set once in each step") {
  SumsOfStep step;
  for (int i = 0; i < 2; ++i) {
    CHECK(step.take(step.gradient(4)));
    CHECK(step.all_of(4) == kLeft);  // nothing was written
    CHECK_FALSE(step.take(step.gradient(4)));
    step.begin();
  }
}

TEST_CASE("first sums: matrices that lie together are set by one product") {
  SumsOfStep step;
  const Tensor joint = step.store().joint_gradient(1, 3, 3);
  CHECK(step.take(joint));
  CHECK_FALSE(step.take(joint));
  for (const int matrix : {1, 2, 3}) CHECK_FALSE(step.take(step.gradient(matrix)));
  CHECK(step.take(step.gradient(4)));
}

TEST_CASE("first sums: what is begun in part is 0 and added to") {
  SumsOfStep step;
  CHECK_FALSE(step.take(step.gradient(2).slice(0, 1, 2)));
  CHECK(step.all_of(2) == 0);
  CHECK(step.all_of(1) == kLeft);
  CHECK_FALSE(step.take(step.store().joint_gradient(1, 3, 3)));  // one of the three has begun
  for (const int matrix : {1, 2, 3}) CHECK(step.all_of(matrix) == 0);
}

TEST_CASE("first sums: matrices without a product end as 0") {
  SumsOfStep step;
  CHECK(step.take(step.gradient(3)));
  step.finish_from(2);
  CHECK(step.all_of(1) == kLeft);  // more may come
  CHECK(step.all_of(2) == 0);
  CHECK(step.all_of(3) == kLeft);  // taken
  CHECK(step.all_of(4) == 0);
  step.finish_from(0);
  CHECK(step.all_of(1) == 0);
  CHECK_FALSE(step.take(step.gradient(1)));
}

// Common parts of tests of tensors: tensors that own their memory, random values, comparisons that name the first wrong
// element, and finite differences.
#pragma once

#include <fmt/format.h>

#include <cmath>
#include <cstdint>
#include <functional>
#include <random>
#include <string>
#include <vector>

#include "backend/tensor/tensor.h"
#include "base/core/half.h"
#include "support/test_backend.h"

namespace megatron::test {

/// A contiguous tensor that owns its memory; converts to a view wherever an operation wants one.
template <class T>
class Owned {
 public:
  explicit Owned(Shape shape, T value = T{})
      : shape_(shape), values_(static_cast<std::size_t>(shape.elements()), value) {}
  Owned(Shape shape, const std::vector<T>& values) : shape_(shape), values_(values.begin(), values.end()) {
    internal_check(static_cast<std::int64_t>(values_.size()) == shape.elements(), "values do not fill the shape");
  }

  Tensor tensor() { return {values_.data(), shape_, DTypeOf<T>::value}; }
  ConstTensor tensor() const { return {values_.data(), shape_, DTypeOf<T>::value}; }
  operator Tensor() { return tensor(); }
  operator ConstTensor() { return tensor(); }
  operator ConstTensor() const { return tensor(); }

  const Shape& shape() const { return shape_; }
  const TestVector<T>& values() const { return values_; }
  std::vector<T> copied_values() const { return {values_.begin(), values_.end()}; }
  T& operator[](std::int64_t i) { return values_[static_cast<std::size_t>(i)]; }
  T operator[](std::int64_t i) const { return values_[static_cast<std::size_t>(i)]; }
  double value(std::int64_t i) const { return static_cast<double>(wide((*this)[i])); }
  std::int64_t elements() const { return shape_.elements(); }
  bool operator==(const Owned& other) const { return shape_ == other.shape_ && values_ == other.values_; }

 private:
  Shape shape_;
  TestVector<T> values_;
};

/// Uniform in [center - width, center + width], the same for the same seed on every platform; rounded to T.
template <class T = float>
Owned<T> random_tensor(Shape shape, std::uint64_t seed, double width = 1, double center = 0) {
  Owned<T> result(shape);
  std::mt19937_64 engine(seed);
  for (std::int64_t i = 0; i < result.elements(); ++i) {
    const double unit = static_cast<double>(engine() >> 11) * 0x1p-53;
    result[i] = narrow<T>(static_cast<float>(center + width * (2 * unit - 1)));
  }
  return result;
}

/// Integers in [0, bound).
inline Owned<std::int32_t> random_ids(std::int64_t count, std::int64_t bound, std::uint64_t seed) {
  Owned<std::int32_t> result(Shape{count});
  std::mt19937_64 engine(seed);
  for (std::int64_t i = 0; i < count; ++i) {
    result[i] = static_cast<std::int32_t>(engine() % static_cast<std::uint64_t>(bound));
  }
  return result;
}

/// first, first + 1, ...
inline Owned<std::int32_t> counting_ids(std::int64_t count, std::int32_t first = 0) {
  Owned<std::int32_t> result(Shape{count});
  for (std::int64_t i = 0; i < count; ++i) result[i] = first + static_cast<std::int32_t>(i);
  return result;
}

template <class T>
std::vector<double> as_doubles(const Owned<T>& x) {
  std::vector<double> result;
  for (std::int64_t i = 0; i < x.elements(); ++i) result.push_back(x.value(i));
  return result;
}

/// By how much an exact result may change when it is stored as a T: half a unit in the last place. Nothing for f32,
/// where tolerances cover it.
template <class T>
double rounding_of(double exact) {
  if constexpr (std::is_same_v<T, BFloat16>) return 0x1p-8 * std::abs(exact);
  if constexpr (std::is_same_v<T, Float16>) return std::max(0x1p-11 * std::abs(exact), 0x1p-25);
  return 0;
}

/// "" if |got - want| <= tolerance * (largest |want| + floor) + one rounding of want to T for all elements, else where
/// it first is not. So 16-bit results must be as good as f32's, but for one rounding.
/// Use as CHECK(difference(got, want, 1e-6) == "").
template <class T>
std::string difference(const Owned<T>& got, const std::vector<double>& want, double tolerance, double floor = 1e-30) {
  if (static_cast<std::size_t>(got.elements()) != want.size()) {
    return fmt::format("{} elements, not {}", got.elements(), want.size());
  }
  double largest = floor;
  for (const double w : want) largest = std::max(largest, std::abs(w));
  for (std::size_t i = 0; i < want.size(); ++i) {
    const double value = got.value(static_cast<std::int64_t>(i));
    const double allowed = tolerance * largest + rounding_of<T>(want[i]);
    if (!(std::abs(value - want[i]) <= allowed)) {
      return fmt::format("element {} of {} is {:.9g}, not {:.9g} (tolerance {:.3g})", i, got.shape().to_string(), value,
                         want[i], allowed);
    }
  }
  return "";
}
template <class T>
std::string difference(const Owned<T>& got, const Owned<T>& want, double tolerance, double floor = 1e-30) {
  return difference(got, as_doubles(want), tolerance, floor);
}

/// Central differences of a function of x, for every element of x.
inline std::vector<double> numerical_gradient(const std::function<double(const std::vector<double>&)>& function,
                                              std::vector<double> x, double step = 1e-5) {
  std::vector<double> gradient(x.size());
  for (std::size_t i = 0; i < x.size(); ++i) {
    const double middle = x[i];
    x[i] = middle + step;
    const double above = function(x);
    x[i] = middle - step;
    const double below = function(x);
    x[i] = middle;
    gradient[i] = (above - below) / (2 * step);
  }
  return gradient;
}

}  // namespace megatron::test

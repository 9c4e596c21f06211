// Tensor: a typed, strided view of memory that a Buffer or an Arena owns. Never frees, cheap to copy.
//
// ConstTensor is the read-only view; a Tensor converts to it by itself. Strides are in elements; the last dimension of
// a non-empty view always has stride 1. Shapes are written outermost first: activations are [s, b, h] (sequence,
// micro-batch, hidden). An empty (default) tensor means "absent" wherever an argument is optional.
#pragma once

#include <array>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <string>

#include "base/core/dtype.h"
#include "base/core/error.h"

namespace megatron {

inline constexpr int kMaxRank = 5;

/// Up to five extents. Default: rank 0, which no tensor with memory has.
class Shape {
 public:
  Shape() = default;
  Shape(std::initializer_list<std::int64_t> extents) : Shape(std::span(extents.begin(), extents.size())) {}
  explicit Shape(std::span<const std::int64_t> extents);

  int rank() const { return rank_; }
  std::int64_t operator[](int i) const { return extents_[static_cast<std::size_t>(i)]; }
  std::int64_t& operator[](int i) { return extents_[static_cast<std::size_t>(i)]; }
  std::int64_t elements() const;  ///< the product; 0 for rank 0
  bool operator==(const Shape& other) const;
  std::string to_string() const;  ///< "[4, 2, 64]"

 private:
  std::array<std::int64_t, kMaxRank> extents_{};
  int rank_ = 0;
};

class ConstTensor {
 public:
  ConstTensor() = default;
  /// A contiguous view of `shape` at `data`.
  ConstTensor(const void* data, Shape shape, DType type);

  bool empty() const { return data_ == nullptr; }
  explicit operator bool() const { return data_ != nullptr; }
  DType dtype() const { return type_; }
  const Shape& shape() const { return shape_; }
  int rank() const { return shape_.rank(); }
  std::int64_t dim(int i) const { return shape_[i]; }
  std::int64_t stride(int i) const { return strides_[static_cast<std::size_t>(i)]; }
  std::int64_t elements() const { return shape_.elements(); }
  std::size_t bytes() const { return static_cast<std::size_t>(elements()) * size_of(type_); }  ///< elements only
  bool contiguous() const;

  const void* data() const { return data_; }
  /// Typed pointer to the first element; a wrong T is an internal error.
  template <class T>
  const T* as() const {
    internal_check(DTypeOf<T>::value == type_, "tensor read as another type than it has", DTypeOf<T>::value, type_);
    return static_cast<const T*>(data_);
  }

  ConstTensor view(Shape shape) const;  ///< the same elements in another shape; needs a contiguous tensor
  /// Elements [first, first + count) of dimension `dimension`.
  ConstTensor slice(int dimension, std::int64_t first, std::int64_t count) const;
  /// Splits the last dimension into [outer, last / outer] (heads of a hidden vector); strides are kept.
  ConstTensor split_last(std::int64_t outer) const;
  /// The same elements with two dimensions, neither of them the last, in each other's place.
  ConstTensor swapped(int first, int second) const;

 protected:
  const void* data_ = nullptr;
  Shape shape_;
  std::array<std::int64_t, kMaxRank> strides_{};
  DType type_ = DType::f32;
};

class Tensor : public ConstTensor {
 public:
  Tensor() = default;
  Tensor(void* data, Shape shape, DType type) : ConstTensor(data, shape, type) {}

  void* data() const { return const_cast<void*>(data_); }
  template <class T>
  T* as() const {
    return const_cast<T*>(ConstTensor::as<T>());
  }
  Tensor view(Shape shape) const { return Tensor(ConstTensor::view(shape)); }
  Tensor slice(int dimension, std::int64_t first, std::int64_t count) const {
    return Tensor(ConstTensor::slice(dimension, first, count));
  }
  Tensor split_last(std::int64_t outer) const { return Tensor(ConstTensor::split_last(outer)); }
  Tensor swapped(int first, int second) const { return Tensor(ConstTensor::swapped(first, second)); }

 private:
  explicit Tensor(const ConstTensor& view) : ConstTensor(view) {}
};

}  // namespace megatron

#include "backend/tensor/tensor.h"

#include <utility>

namespace megatron {

Shape::Shape(std::span<const std::int64_t> extents) {
  internal_check(extents.size() <= kMaxRank, "shape of more than five dimensions", extents.size());
  for (const std::int64_t extent : extents) {
    internal_check(extent >= 0, "negative extent in a shape", extent);
    extents_[static_cast<std::size_t>(rank_++)] = extent;
  }
}

std::int64_t Shape::elements() const {
  if (rank_ == 0) return 0;
  std::int64_t product = 1;
  for (int i = 0; i < rank_; ++i) product *= (*this)[i];
  return product;
}

bool Shape::operator==(const Shape& other) const {
  return rank_ == other.rank_ && extents_ == other.extents_;
}

std::string Shape::to_string() const {
  std::string text = "[";
  for (int i = 0; i < rank_; ++i) text += (i ? ", " : "") + std::to_string((*this)[i]);
  return text + "]";
}

ConstTensor::ConstTensor(const void* data, Shape shape, DType type) : data_(data), shape_(shape), type_(type) {
  std::int64_t stride = 1;
  for (int i = shape.rank() - 1; i >= 0; --i) {
    strides_[static_cast<std::size_t>(i)] = stride;
    stride *= shape[i];
  }
}

bool ConstTensor::contiguous() const {
  std::int64_t expected = 1;
  for (int i = rank() - 1; i >= 0; --i) {
    if (dim(i) != 1 && stride(i) != expected) return false;
    expected *= dim(i);
  }
  return true;
}

ConstTensor ConstTensor::view(Shape shape) const {
  internal_check(contiguous(), "view of a tensor that is not contiguous");
  internal_check(shape.elements() == elements(), "view with another number of elements", shape_, shape);
  return {data_, shape, type_};
}

ConstTensor ConstTensor::slice(int dimension, std::int64_t first, std::int64_t count) const {
  internal_check(dimension >= 0 && dimension < rank(), "slice of a dimension that does not exist", dimension, rank());
  internal_check(first >= 0 && count >= 0 && first + count <= dim(dimension), "slice outside the tensor", first, count,
                 dim(dimension));
  ConstTensor result = *this;
  result.shape_[dimension] = count;
  result.data_ = static_cast<const char*>(data_) + static_cast<std::size_t>(first * stride(dimension)) * size_of(type_);
  return result;
}

ConstTensor ConstTensor::split_last(std::int64_t outer) const {
  internal_check(rank() >= 1 && rank() < kMaxRank && outer > 0 && dim(rank() - 1) % outer == 0,
                 "last dimension does not split evenly", shape_, outer);
  ConstTensor result = *this;
  Shape shape;
  std::array<std::int64_t, kMaxRank> strides{};
  const int last = rank() - 1;
  const std::int64_t inner = dim(last) / outer;
  switch (rank()) {
    case 1: shape = {outer, inner}; break;
    case 2: shape = {dim(0), outer, inner}; break;
    case 3: shape = {dim(0), dim(1), outer, inner}; break;
    default: shape = {dim(0), dim(1), dim(2), outer, inner}; break;
  }
  for (int i = 0; i < last; ++i) strides[static_cast<std::size_t>(i)] = stride(i);
  strides[static_cast<std::size_t>(last)] = inner;
  strides[static_cast<std::size_t>(last) + 1] = 1;
  result.shape_ = shape;
  result.strides_ = strides;
  return result;
}

ConstTensor ConstTensor::swapped(int first, int second) const {
  internal_check(first >= 0 && second >= 0 && first < rank() - 1 && second < rank() - 1,
                 "only dimensions in front of the last can be swapped", first, second, rank());
  ConstTensor result = *this;
  std::swap(result.shape_[first], result.shape_[second]);
  std::swap(result.strides_[static_cast<std::size_t>(first)], result.strides_[static_cast<std::size_t>(second)]);
  return result;
}

}  // namespace megatron

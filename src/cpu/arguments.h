// Checked access to the tensors in a verb's arguments: what a backend lacks is said by name, what a caller broke is an
// internal error at the verb's own line.
#pragma once

#include "tensor/tensor.h"

namespace megatron {

/// Elements of a contiguous f32 tensor that must have `elements` of them. Another dtype: Error(configuration) with the
/// verb and the dtype. Another size or strides: internal error.
inline const float* f32_elements(const char* verb, const ConstTensor& x, std::int64_t elements,
                                 SourcePlace where = SourcePlace::current()) {
  verify(x.dtype() == DType::f32, ErrorKind::configuration,
         "{}: the CPU backend has no {}; use precision.compute = \"fp32\" or another run.device", verb,
         name_of(x.dtype()));
  internal_check(x.elements() == elements, verb, where);
  internal_check(x.contiguous(), verb, where);
  return static_cast<const float*>(x.data());
}
inline float* f32_elements(const char* verb, const Tensor& x, std::int64_t elements,
                           SourcePlace where = SourcePlace::current()) {
  return const_cast<float*>(f32_elements(verb, static_cast<const ConstTensor&>(x), elements, where));
}

/// The same for an optional tensor: null where it is absent.
template <class TensorType>
auto optional_f32_elements(const char* verb, const TensorType& x, std::int64_t elements,
                           SourcePlace where = SourcePlace::current()) {
  return x.empty() ? nullptr : f32_elements(verb, x, elements, where);
}

/// Elements of a contiguous i32 tensor of `elements`; anything else is an internal error.
inline const std::int32_t* i32_elements(const char* verb, const ConstTensor& x, std::int64_t elements,
                                        SourcePlace where = SourcePlace::current()) {
  internal_check(x.dtype() == DType::i32 && x.elements() == elements && x.contiguous(), verb, where);
  return static_cast<const std::int32_t*>(x.data());
}

/// The f64 scalar that sums of squares and losses are added to.
inline double* f64_scalar(const char* verb, const Tensor& x, SourcePlace where = SourcePlace::current()) {
  internal_check(x.dtype() == DType::f64 && x.elements() == 1, verb, where);
  return static_cast<double*>(x.data());
}

/// The last dimension, and everything in front of it taken together as rows of it.
struct RowsOf {
  std::int64_t rows, columns;
  explicit RowsOf(const ConstTensor& x) : rows(0), columns(x.rank() == 0 ? 0 : x.dim(x.rank() - 1)) {
    if (columns > 0) rows = x.elements() / columns;
  }
  std::int64_t elements() const { return rows * columns; }
};

}  // namespace megatron

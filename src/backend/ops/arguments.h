// Checked access to the tensors in a verb's arguments: what the backend lacks is said by name, what a caller broke is
// an internal error with the verb's name.
#pragma once

#include "backend/ops/ops.h"
#include "backend/tensor/tensor.h"
#include "base/core/half.h"

namespace megatron {

/// Calls body with a zero of the element type of activations of `type`: float, BFloat16 or Float16. Another dtype:
/// Error(configuration) with the verb and the dtype.
template <class Body>
void with_activation_type(const char* verb, DType type, const Body& body) {
  switch (type) {
    case DType::f32: return body(float{});
    case DType::bf16: return body(BFloat16{});
    case DType::f16: return body(Float16{});
    default: fail(ErrorKind::configuration, "{}: this backend has no {}", verb, name_of(type));
  }
}

/// Elements of a contiguous tensor of T that must have `elements` of them; anything else is an internal error.
template <class T>
const T* elements_of(const char* verb, const ConstTensor& x, std::int64_t elements,
                     SourcePlace where = SourcePlace::current()) {
  if (x.dtype() != DTypeOf<T>::value) [[unlikely]] {
    fail(ErrorKind::internal, "{}: a tensor of {} where {} is due", verb, name_of(x.dtype()),
         name_of(DTypeOf<T>::value));
  }
  internal_check(x.elements() == elements, {verb, where}, x.shape(), elements);
  internal_check(x.contiguous(), {verb, where});
  return static_cast<const T*>(x.data());
}
template <class T>
T* elements_of(const char* verb, const Tensor& x, std::int64_t elements, SourcePlace where = SourcePlace::current()) {
  return const_cast<T*>(elements_of<T>(verb, static_cast<const ConstTensor&>(x), elements, where));
}

/// The same for an optional tensor: null where it is absent.
template <class T, class TensorType>
auto optional_elements_of(const char* verb, const TensorType& x, std::int64_t elements,
                          SourcePlace where = SourcePlace::current()) {
  return x.empty() ? nullptr : elements_of<T>(verb, x, elements, where);
}

/// The f64 scalar that sums of squares and losses are added to.
inline double* f64_scalar(const char* verb, const Tensor& x, SourcePlace where = SourcePlace::current()) {
  internal_check(x.dtype() == DType::f64 && x.elements() == 1, {verb, where}, x.dtype(), x.shape());
  return static_cast<double*>(x.data());
}

/// Whether a state is kept in bf16. Checks its draws if so.
inline bool rounds_state(const char* verb, const ConstTensor& state, const StateDraws& draws,
                         SourcePlace where = SourcePlace::current()) {
  if (state.dtype() != DType::bf16) return false;
  internal_check(draws.columns > 0 && draws.first >= 0 && draws.first_row >= 0 && draws.first_column >= 0,
                 {verb, where}, draws.columns, draws.first, draws.first_row, draws.first_column);
  return true;
}

/// The last dimension, and everything in front of it taken together as rows of it.
struct RowsOf {
  std::int64_t rows, columns;
  explicit RowsOf(const ConstTensor& x) : rows(0), columns(x.rank() == 0 ? 0 : x.dim(x.rank() - 1)) {
    if (columns > 0) rows = x.elements() / columns;
  }
  std::int64_t elements() const { return rows * columns; }
};

/// Where the rows of a tensor begin, in elements: those of all dimensions but the last, evenly spaced but for one jump
/// after every `together` of them. Rows at any other places, and rows that are not contiguous, are an internal error.
class RowPlaces {
 public:
  RowPlaces() = default;
  RowPlaces(const char* verb, const ConstTensor& x, SourcePlace where = SourcePlace::current()) {
    const int last = x.rank() - 1;
    internal_check(last >= 0 && (x.dim(last) <= 1 || x.stride(last) == 1), {verb, where}, x.shape());
    if (x.elements() == 0) return;
    std::int64_t rows = 1;
    bool jumps = false;
    for (int i = last - 1; i >= 0; --i) {
      if (x.dim(i) == 1) continue;
      if (rows == 1) {
        spacing = x.stride(i);
      } else if (!jumps && x.stride(i) == rows * spacing) {
        // as before
      } else if (!jumps) {
        jumps = true;
        together = rows;
        jump = x.stride(i);
      } else {
        internal_check(x.stride(i) == rows / together * jump, {verb, where}, x.shape(), x.stride(i),
                       rows / together * jump);
      }
      rows *= x.dim(i);
    }
    if (!jumps) together = rows;
    internal_check(!jumps || rows <= INT32_MAX, {verb, where}, rows);  // operator[] divides in 32 bits
  }

  constexpr std::int64_t operator[](std::int64_t row) const {
    if (row < together) return row * spacing;
    const auto narrow_row = static_cast<std::uint32_t>(row), group = static_cast<std::uint32_t>(together);
    return narrow_row / group * jump + narrow_row % group * spacing;
  }
  /// Whether every row begins at a multiple of this number of elements after the first.
  bool multiples_of(std::int64_t elements) const { return spacing % elements == 0 && jump % elements == 0; }

  std::int64_t together = 1, spacing = 0, jump = 0;
};

/// A checked tensor of T whose rows lie so.
template <class T>
struct StridedRows {
  T* data = nullptr;
  RowPlaces places;

  constexpr T* operator[](std::int64_t row) const { return data + places[row]; }
};

/// Rows of a tensor that must have as many of them, and as long, as `size` says.
template <class T>
StridedRows<const T> rows_of(const char* verb, const ConstTensor& x, RowsOf size,
                             SourcePlace where = SourcePlace::current()) {
  if (x.dtype() != DTypeOf<T>::value) [[unlikely]] {
    fail(ErrorKind::internal, "{}: a tensor of {} where {} is due", verb, name_of(x.dtype()),
         name_of(DTypeOf<T>::value));
  }
  internal_check(x.elements() == size.elements() && RowsOf(x).columns == size.columns, {verb, where}, x.shape(),
                 size.rows, size.columns);
  return {static_cast<const T*>(x.data()), RowPlaces(verb, x, where)};
}
template <class T>
StridedRows<T> rows_of(const char* verb, const Tensor& x, RowsOf size, SourcePlace where = SourcePlace::current()) {
  const auto rows = rows_of<T>(verb, static_cast<const ConstTensor&>(x), size, where);
  return {const_cast<T*>(rows.data), rows.places};
}

}  // namespace megatron

// TensorPrint: what a check of collectives knows of a tensor's numbers without the numbers: whether two are the same
// bits, and by how much a sum of tensors can be another one.
#pragma once

#include <cstdint>
#include <vector>

#include "backend/tensor/tensor.h"

namespace megatron {

/// A tensor cut into parts has one of each.
struct TensorPrint {
  std::uint64_t bits = 0;  ///< a hash of them; any NaN is one NaN, since ranks may have others
  double product = 0;      ///< with fixed pseudo-random numbers: the product of a sum is the sum of the products
  double size = 0;         ///< the sum of its terms' sizes, to which rounding is relative
  bool zero = true;        ///< all elements are
};

/// `bytes`: the tensor's, in host memory. `parts` divides its elements.
std::vector<TensorPrint> prints_of(const std::byte* bytes, DType type, std::int64_t elements, int parts);

/// The whole tensor's: the same bits where all parts have them.
TensorPrint print_of_parts(const std::vector<TensorPrint>& parts);
/// The sum's of these tensors, but for its bits, which rounding decides.
TensorPrint print_of_sum(const std::vector<TensorPrint>& terms);

/// Rounding of one addition of this type, relative.
double roundoff_of(DType type);

}  // namespace megatron

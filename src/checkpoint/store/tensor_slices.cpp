#include "checkpoint/store/tensor_slices.h"

namespace megatron {

namespace {

bool sound(const Tensor& tensor, std::int64_t count) {
  return tensor.dtype() == DType::f32 && tensor.contiguous() && tensor.elements() == count;
}

bool sound(const TensorSlice& slice) {
  const int rank = slice.global_shape.rank();
  const Box& box = slice.box;
  if (slice.name.empty() || slice.name.size() > kLongestTensorName || rank == 0 || box.offset.rank() != rank ||
      box.extent.rank() != rank)
    return false;
  for (int i = 0; i < rank; ++i) {
    if (box.offset[i] < 0 || box.extent[i] < 0 || box.offset[i] + box.extent[i] > slice.global_shape[i]) return false;
  }
  if (slice.first < 0 || slice.count < 0 || slice.first + slice.count > box.extent.elements()) return false;
  if (slice.count == 0) return true;
  if (!slice.value || !sound(slice.value, slice.count)) return false;
  if (slice.m.empty() && !slice.v.empty()) return false;
  return (slice.m.empty() || sound(slice.m, slice.count)) && (slice.v.empty() || sound(slice.v, slice.count));
}

}  // namespace

void check_slices(const std::vector<TensorSlice>& slices) {
  for (const TensorSlice& slice : slices) {
    if (!sound(slice)) fail(ErrorKind::internal, "the slice of tensor '{}' contradicts itself", slice.name);
  }
}

}  // namespace megatron

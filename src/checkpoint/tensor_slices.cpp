#include "checkpoint/tensor_slices.h"

namespace megatron {

namespace {

bool sound(const Tensor& tensor, std::int64_t count) {
  return tensor.dtype() == DType::f32 && tensor.contiguous() && tensor.elements() == count;
}

bool sound(const TensorSlice& piece) {
  const int rank = piece.global_shape.rank();
  const Box& box = piece.box;
  if (piece.name.empty() || piece.name.size() > kLongestTensorName || rank == 0 || box.offset.rank() != rank ||
      box.extent.rank() != rank)
    return false;
  for (int i = 0; i < rank; ++i) {
    if (box.offset[i] < 0 || box.extent[i] < 0 || box.offset[i] + box.extent[i] > piece.global_shape[i]) return false;
  }
  if (piece.first < 0 || piece.count < 0 || piece.first + piece.count > box.extent.elements()) return false;
  if (piece.count == 0) return true;
  if (!piece.value || !sound(piece.value, piece.count)) return false;
  if (piece.m.empty() && !piece.v.empty()) return false;
  return (piece.m.empty() || sound(piece.m, piece.count)) && (piece.v.empty() || sound(piece.v, piece.count));
}

}  // namespace

void check_slices(const std::vector<TensorSlice>& pieces) {
  for (const TensorSlice& piece : pieces) {
    if (!sound(piece)) fail(ErrorKind::internal, "the piece of tensor '{}' contradicts itself", piece.name);
  }
}

}  // namespace megatron

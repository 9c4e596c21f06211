#include "distributed/parallel/tensor_region.h"

namespace megatron {

namespace {
Shape whole_shape(const ConstTensor& outside, int size) {
  Shape shape = outside.shape();
  shape[0] *= size;
  return shape;
}
}  // namespace

ConstTensor TensorRegion::enter(Arena& arena, ConstTensor outside, SourcePlace place) const {
  Entering entering = start_enter(arena, outside, place);
  entering.gathered.wait();
  return entering.whole;
}

TensorRegion::Entering TensorRegion::start_enter(Arena& arena, ConstTensor outside, SourcePlace place) const {
  if (!sequence_parallel_) {
    tensor_.expects(outside, {kStream, place});
    return {outside, {}};
  }
  const Tensor whole = arena.allocate("gathered sequence", whole_shape(outside, size()), outside.dtype());
  return {whole, tensor_.start_all_gather(outside, whole, {kSequenceRows, place})};
}

Tensor TensorRegion::partial_sum_buffer(Arena& arena, Tensor outside) const {
  if (!sequence_parallel_) return outside;
  return arena.allocate("share of a sum", whole_shape(outside, size()), outside.dtype());
}

Pending TensorRegion::start_leave(Tensor share, Tensor outside, const Holding<Hold::partial>& said) const {
  if (sequence_parallel_) return tensor_.start_reduce_scatter(share, outside, said);
  internal_check(share.data() == outside.data(), "share of a tensor-parallel sum is not the sum itself");
  return tensor_.start_all_reduce(outside, said);
}

}  // namespace megatron

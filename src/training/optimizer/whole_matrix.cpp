#include "training/optimizer/whole_matrix.h"

#include <algorithm>

#include "backend/ops/counting_ops.h"
#include "distributed/comm/counting_communicator.h"

namespace megatron {

namespace {

/// How ranks share a matrix out: in equal parts along one dimension, of which neighbours may hold the same.
struct Cut {
  int dimension, parts, ranks_each;
};

Cut cut_of(const Parameter& parameter, const Communicator& tensor) {
  const Shape &whole = parameter.global_shape, &box = parameter.box.extent;
  const int dimension = box[0] == whole[0] ? 1 : 0;
  const auto parts = static_cast<int>(whole[dimension] / box[dimension]);
  const Cut cut{dimension, parts, tensor.size() / parts};
  internal_check(box[1 - dimension] == whole[1 - dimension] && parts * cut.ranks_each == tensor.size() &&
                     parameter.box.offset[dimension] == tensor.rank() / cut.ranks_each * box[dimension],
                 "a matrix that tensor ranks share out in another way", parameter.box.offset, box, whole);
  return cut;
}

/// Copies one matrix of these into another: contiguous ones, and blocks of such. `none`: i32 [1], 0.
void copy_block(Ops& ops, ConstTensor none, ConstTensor from, Tensor to) {
  ops.append_rows({.x = from, .offsets = none, .y = to});
}

/// [rows, columns] as append_rows takes it: one row of one sample, whose heads these are.
Tensor as_heads(Tensor flat, const Shape& shape) {
  return flat.slice(0, 0, shape.elements()).view({1, 1, shape[0], shape[1]});
}

}  // namespace

Tensor make_whole_matrix(Ops& ops, Communicator& tensor, Arena& scratch, const MatrixUpdate& rule,
                         const Parameter& parameter, Tensor direction) {
  const Shape &whole = parameter.global_shape, &box = parameter.box.extent;
  internal_check(whole.rank() == 2 && direction.shape() == box, "a matrix is updated as a whole", whole, box,
                 direction.shape());
  if (box == whole) {
    const Tensor y = scratch.allocate("update of a matrix", whole, DType::f32);
    rule.make_whole(ops, scratch, direction, y);
    return y;
  }
  const Cut cut = cut_of(parameter, tensor);
  const std::int64_t count = box.elements(), gathered = tensor.size() * count;
  const Tensor x = scratch.allocate("direction of a matrix", {whole.elements()}, DType::f32);
  const Tensor y = scratch.allocate("update of a matrix", {gathered}, DType::f32);  // at first, the ranks' parts
  const Tensor none = scratch.allocate("no offset", {1}, DType::i32);
  ops.fill(none, 0);
  const auto part_of = [&](Tensor flat, int part) {
    return as_heads(flat, whole).slice(2 + cut.dimension, part * box[cut.dimension], box[cut.dimension]);
  };
  tensor.all_gather(direction.view({count}), y);
  for (int part = 0; part < cut.parts; ++part) {
    copy_block(ops, none, as_heads(y.slice(0, part * cut.ranks_each * count, count), box), part_of(x, part));
  }
  const Tensor update = y.slice(0, 0, whole.elements());
  rule.make_whole(ops, scratch, x.view(whole), update.view(whole));
  copy_block(ops, none, part_of(update, tensor.rank() / cut.ranks_each), as_heads(direction.view({count}), box));
  return direction;
}

std::size_t whole_matrix_bytes(const Communicator& tensor, const MatrixUpdate& rule, const Parameter& parameter) {
  CountingOps ops;
  CountingCommunicator ranks(tensor.rank(), tensor.size());
  Arena scratch("updates of matrices"), tensors("direction");
  make_whole_matrix(ops, ranks, scratch, rule, parameter,
                    tensors.allocate("direction", parameter.box.extent, DType::f32));
  return scratch.high_water();
}

}  // namespace megatron

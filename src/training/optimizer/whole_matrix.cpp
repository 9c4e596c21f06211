#include "training/optimizer/whole_matrix.h"

#include <algorithm>
#include <functional>
#include <numeric>
#include <tuple>
#include <vector>

#include "backend/ops/counting_ops.h"
#include "distributed/comm/meanings.h"

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

/// [rows, columns] as append_rows takes it: one row of one sample, whose heads these are.
Tensor as_heads(Tensor flat, const Shape& shape) {
  return flat.slice(0, 0, shape.elements()).view({1, 1, shape[0], shape[1]});
}

/// Memory of an exchange: both hold a part for every rank, and then a whole matrix.
struct Exchange {
  Tensor first, second;  ///< f32 [ranks · room]
  Tensor none;           ///< i32 [1]: 0, for append_rows
  std::int64_t room;     ///< elements of the largest part

  Exchange(Arena& scratch, int ranks, std::int64_t largest) : room(largest) {
    first = scratch.allocate("parts of matrices", {ranks * room}, DType::f32);
    second = scratch.allocate("parts of other matrices", {ranks * room}, DType::f32);
    none = scratch.allocate("no offset", {1}, DType::i32);
  }
  Tensor part(Tensor parts, int rank, std::int64_t count) const { return parts.slice(0, rank * room, count); }
};

/// Makes a matrix, of which second has every rank's part, whole in first, and puts all parts of the result there.
void work_on(Ops& ops, const Communicator& tensor, Arena& scratch, const DirectedMatrix& matrix,
             const Exchange& exchange) {
  const Shape &whole = matrix.parameter->global_shape, &box = matrix.parameter->box.extent;
  const Cut cut = cut_of(*matrix.parameter, tensor);
  const auto box_in = [&](Tensor flat, int part) {
    return as_heads(flat, whole).slice(2 + cut.dimension, part * box[cut.dimension], box[cut.dimension]);
  };
  const auto part = [&](Tensor parts, int rank) { return as_heads(exchange.part(parts, rank, box.elements()), box); };
  for (int i = 0; i < cut.parts; ++i) {
    ops.append_rows(
        {.x = part(exchange.second, i * cut.ranks_each), .offsets = exchange.none, .y = box_in(exchange.first, i)});
  }
  matrix.rule->make_whole(ops, scratch, exchange.first.slice(0, 0, whole.elements()).view(whole),
                          exchange.second.slice(0, 0, whole.elements()).view(whole));
  for (int rank = 0; rank < tensor.size(); ++rank) {
    ops.append_rows({.x = box_in(exchange.second, rank / cut.ranks_each),
                     .offsets = exchange.none,
                     .y = part(exchange.first, rank)});
  }
}

/// At most as many matrices as there are ranks.
void make_together(Ops& ops, Communicator& tensor, Arena& scratch, std::span<const DirectedMatrix> matrices) {
  const ArenaScope scope(scratch);
  std::int64_t largest = 0;
  for (const DirectedMatrix& matrix : matrices) largest = std::max(largest, matrix.parameter->elements());
  const Exchange exchange(scratch, tensor.size(), largest);
  ops.fill(exchange.none, 0);
  ops.fill(exchange.first, 0);
  const auto part = [&](Tensor parts, std::size_t i) {
    return exchange.part(parts, static_cast<int>(i), matrices[i].parameter->elements());
  };
  for (std::size_t i = 0; i < matrices.size(); ++i) ops.copy(matrices[i].parameter->gradient, part(exchange.first, i));
  tensor.all_to_all(exchange.first, exchange.second, kMatrixParts);
  const auto own = static_cast<std::size_t>(tensor.rank());
  if (own < matrices.size()) work_on(ops, tensor, scratch, matrices[own], exchange);
  tensor.all_to_all(exchange.first, exchange.second, kMatrixParts);
  for (std::size_t i = 0; i < matrices.size(); ++i) ops.copy(part(exchange.second, i), matrices[i].parameter->gradient);
}

void make_alone(Ops& ops, Arena& scratch, const DirectedMatrix& matrix) {
  const ArenaScope scope(scratch);
  const Tensor update = scratch.allocate("update of a matrix", matrix.parameter->global_shape, DType::f32);
  matrix.rule->make_whole(ops, scratch, matrix.parameter->gradient, update);
  ops.copy(update, matrix.parameter->gradient);
}

}  // namespace

bool DirectedMatrix::before(const DirectedMatrix& other) const {
  const auto key = [](const DirectedMatrix& matrix) {
    const Shape& shape = matrix.parameter->global_shape;
    return std::tuple(matrix.is_cut(), -shape.elements(), shape[0]);
  };
  return key(*this) < key(other);
}

void make_whole(Ops& ops, Communicator& tensor, Arena& scratch, std::span<const DirectedMatrix> matrices) {
  const auto ranks = static_cast<std::size_t>(tensor.size());
  while (!matrices.empty()) {
    std::size_t count = 0;
    while (count < std::min(matrices.size(), ranks) && matrices[count].is_cut()) ++count;
    if (count == 0) {
      make_alone(ops, scratch, matrices.front());
    } else {
      make_together(ops, tensor, scratch, matrices.first(count));
    }
    matrices = matrices.subspan(std::max<std::size_t>(count, 1));
  }
}

std::size_t whole_matrix_bytes(const Communicator& tensor, std::span<const DirectedMatrix> matrices) {
  CountingOps ops;
  std::size_t most = 0, most_work = 0;
  for (const DirectedMatrix& matrix : matrices) {
    const Shape& whole = matrix.parameter->global_shape;
    Arena memory("matrices"), work("work"), tensors("tensors");
    if (matrix.is_cut()) {
      Exchange(memory, tensor.size(), matrix.parameter->elements());
    } else {
      memory.allocate("update of a matrix", whole, DType::f32);
    }
    matrix.rule->make_whole(ops, work, tensors.allocate("x", whole, DType::f32),
                            tensors.allocate("y", whole, DType::f32));
    most = std::max(most, memory.high_water());
    most_work = std::max(most_work, work.high_water());
  }
  return most + most_work;
}

std::int64_t largest_together(std::span<const DirectedMatrix> matrices, std::size_t tensor_ranks) {
  std::int64_t alone = 0;
  std::vector<std::int64_t> cut;
  for (const DirectedMatrix& matrix : matrices) {
    const std::int64_t elements = matrix.parameter->elements();
    if (matrix.is_cut()) {
      cut.push_back(elements);
    } else {
      alone = std::max(alone, elements);
    }
  }
  std::sort(cut.begin(), cut.end(), std::greater());
  cut.resize(std::min(cut.size(), tensor_ranks));
  return std::max(alone, std::accumulate(cut.begin(), cut.end(), std::int64_t{0}));
}

void mark_matrices(ParameterStore& store, const ParameterGroups& groups, int tensor_ranks) {
  for (const GroupSettings& settings : groups.settings()) {
    if (row_named(kUpdateRules, settings.optimizer.name).needs_matrices) store.expect_matrices();
  }
  for (const Parameter& parameter : store.all()) {
    const MatrixUpdate* const rule = groups.of(parameter).rule->update_matrix;
    if (rule == nullptr) continue;
    const int workers = DirectedMatrix{&parameter, rule}.is_cut() ? tensor_ranks : 1;
    store.mark_matrix(parameter.index, rule->flops(parameter.global_shape) / workers);
  }
}

}  // namespace megatron

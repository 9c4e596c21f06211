// Matrices for updates that need them whole, where tensor ranks hold parts: each rank is sent the parts of other
// matrices, makes its own of the whole, and sends the others their parts of that. So every matrix is worked on once.
#pragma once

#include <span>

#include "backend/ops/ops.h"
#include "backend/tensor/memory.h"
#include "distributed/comm/communicator.h"
#include "distributed/parallel/parameter.h"
#include "training/optimizer/parameter_groups.h"
#include "training/optimizer/update_rules.h"

namespace megatron {

/// A matrix in whose gradient's place its direction is: f32, this rank's box.
struct DirectedMatrix {
  const Parameter* parameter;
  const MatrixUpdate* rule;

  bool is_cut() const { return !(parameter->box.extent == parameter->global_shape); }
  /// An order in which neighbours are about equally much work; whole ones first.
  bool before(const DirectedMatrix& other) const;
};

/// Puts this rank's boxes of what the rules make of the whole matrices in place of the directions. The same bits
/// however ranks hold the matrices. Collective over `tensor`, the grid's, with the same matrices in the same order;
/// each is the work of one rank in turn, or of all of them that hold it whole.
void make_whole(Ops& ops, Communicator& tensor, Arena& scratch, std::span<const DirectedMatrix> matrices);

/// Elements of this rank's boxes of the largest matrices that are made whole together, or of the largest alone.
std::int64_t largest_together(std::span<const DirectedMatrix> matrices, std::size_t tensor_ranks);

/// Bytes of scratch that suffice for any of these matrices, on every rank. Workspace of verbs is not in it.
std::size_t whole_matrix_bytes(const Communicator& tensor, std::span<const DirectedMatrix> matrices);

/// Tells a store, before it is allocated, which parameters are updated as whole matrices, and the floating-point
/// operations that each takes of a rank: all of them, or its share among the tensor ranks that hold it in parts.
void mark_matrices(ParameterStore& store, const ParameterGroups& groups, int tensor_ranks);

}  // namespace megatron

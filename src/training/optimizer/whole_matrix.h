// Matrices that tensor ranks share out, made whole on each of them for updates that need that.
#pragma once

#include "backend/ops/ops.h"
#include "backend/tensor/memory.h"
#include "distributed/comm/communicator.h"
#include "distributed/parallel/parameter.h"
#include "training/optimizer/update_rules.h"

namespace megatron {

/// The parameter's box of what make_whole() makes of the whole direction, whose box `direction` is: f32 [rows,
/// columns], worked in. The result lies in it or in `scratch`, and has the same bits whatever the ranks share out.
/// Collective over `tensor`, the grid's, where the box is not the whole.
Tensor make_whole_matrix(Ops& ops, Communicator& tensor, Arena& scratch, const MatrixUpdate& rule,
                         const Parameter& parameter, Tensor direction);

/// Bytes of scratch that this takes. Workspace of verbs is not in it.
std::size_t whole_matrix_bytes(const Communicator& tensor, const MatrixUpdate& rule, const Parameter& parameter);

}  // namespace megatron

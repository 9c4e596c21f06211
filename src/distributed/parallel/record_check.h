// Checks of the records of all ranks together: which ranks hold the same part of a parameter, over which groups its
// gradient is summed, who counts it in norms, who saves it. A rank cannot see a mistake in its own record; together
// they show it. For tests and for --verify: everything goes to rank 0.
#pragma once

#include <vector>

#include "distributed/comm/process_grid.h"
#include "distributed/parallel/parameter.h"

namespace megatron {

/// Collective over the world. An AgreedError(numerics) names the parameter and the ranks, unless
///   * the ranks over which a record sums a gradient all hold the same part;
///   * ranks that hold the same elements are connected by such sums;
///   * the owners in each copy of the model (of experts in each copy of these) hold every element once.
void check_records(const ProcessGrid& grid, const ParameterStore& store);

/// The same for what ranks write: every element of every tensor once.
void check_shares(Communicator& world, const std::vector<TensorSlice>& slices);

}  // namespace megatron

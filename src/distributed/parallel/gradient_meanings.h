// Meanings of gradients over each group, by the records of their parameters, for checks of collectives. Without a check
// nothing is read or sent.
#pragma once

#include <vector>

#include "distributed/comm/process_grid.h"
#include "distributed/parallel/parameter.h"

namespace megatron {

/// After the sums over the copies: shares where a record asks for a sum over another group, and whole where every
/// tensor rank computes the same. `owned`: the ranges whose sums this rank has.
void expect_shares_of_gradients(const ProcessGrid& grid, const ParameterStore& store,
                                const std::vector<FlatRange>& owned);
/// After all sums: the same on all ranks that hold the same part of a parameter.
void expect_whole_gradients(const ProcessGrid& grid, const ParameterStore& store, const std::vector<FlatRange>& owned);

}  // namespace megatron

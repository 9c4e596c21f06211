// The grid of ranks that a configuration asks for, and how they share the optimizer's state out.
#pragma once

#include "config/schema/config.h"
#include "distributed/comm/process_grid.h"
#include "distributed/parallel/parameter.h"

namespace megatron {

/// The configuration must be resolved.
GridShape grid_shape(const Config& config);
Shards optimizer_shards(const Config& config, const GridShape& shape);
/// Elements of a bucket of a store whose parameters are declared. Where ranks that divide buckets need whole matrices,
/// as much that each rank's part is about a matrix for each tensor rank: else all of them would make all matrices
/// whole. Still several buckets, so that sums run under the backward.
std::int64_t bucket_elements(const Config& config, const ParameterStore& store, const Shards& shards);

}  // namespace megatron

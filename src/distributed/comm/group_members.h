// Members of a grid's groups by name, without their communicators: for reports about ranks of other processes.
#pragma once

#include <optional>
#include <string_view>

#include "distributed/comm/process_grid.h"

namespace megatron {

/// The world's rank of `member` of the group called `group` that `rank` is in; nothing if there is no such group.
std::optional<int> world_rank_of(const GridShape& shape, std::string_view group, int rank, int member);

}  // namespace megatron

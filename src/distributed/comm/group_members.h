// Members of a grid's groups by name, without their communicators: for reports about ranks of other processes.
#pragma once

#include <optional>
#include <string_view>
#include <vector>

#include "distributed/comm/process_grid.h"

namespace megatron {

/// By rank of the world: its group's first member, of the groups called `group`, "world" included; nothing if there is
/// no such group.
std::optional<std::vector<int>> colours_of_group(const GridShape& shape, std::string_view group);

/// The world's rank of `member` of the group called `group` that `rank` is in; nothing if there is no such group.
std::optional<int> world_rank_of(const GridShape& shape, std::string_view group, int rank, int member);

}  // namespace megatron

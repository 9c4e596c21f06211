// Group: the kinds of groups of ranks that a grid has, by what its ranks share. Who their members are: the table in
// process_grid.cpp.
#pragma once

#include <cstddef>

namespace megatron {

/// Kinds before `tie` have one communicator each in every grid. `tie` is any of the grid's ties, `any` a group that
/// does not matter.
enum class Group {
  tensor,
  context,
  data,
  copies,
  expert,
  expert_copies,
  shards,
  expert_shards,
  replicas,
  control,
  pipeline,
  model,
  kv_replicas,
  tie,
  world,
  any
};
/// Rows of the table; a kind without one does not compile.
inline constexpr auto kGroupCount = static_cast<std::size_t>(Group::tie);

}  // namespace megatron

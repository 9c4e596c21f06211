// CheckedGroup: the ranks of a group that is checked, and how errors name its calls: by the line that says what a
// tensor is, the tensor, the group and its ranks. Formats nothing before an error asks for it.
#pragma once

#include <string>
#include <vector>

#include "base/core/activity.h"
#include "distributed/comm/process_grid.h"

namespace megatron {

/// A verb and what its caller says of the tensor; Verb::none where nothing is moved.
struct SaidCall {
  Verb verb;
  Statement said;
};

struct CheckedGroup {
  const GridShape& shape;    ///< the grid of the groups that meanings name; must outlive this
  int world_rank;            ///< this rank's
  std::string name;          ///< the group's
  int rank;                  ///< this rank's in the group
  std::vector<int> members;  ///< ranks of the world

  std::size_t size() const { return members.size(); }
  /// "src/x.cpp:12 in forward: all-reduce of "shares of a layer's output" in group 'tensor' (ranks 0, 1)".
  std::string line(const SaidCall& call) const;
  /// "ranks 0, 1"
  static std::string list_of(const std::vector<int>& ranks);
  /// Error(numerics) unless this is the group that the call's meaning names.
  void require_meant(const SaidCall& call) const;
};

/// Equal on all ranks that say the same at the same line.
std::uint64_t hash_of(const SaidCall& call);

}  // namespace megatron

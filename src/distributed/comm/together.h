// together: work that every rank does for itself, whose results all ranks get.
#pragma once

#include "distributed/comm/agreement.h"
#include "distributed/comm/gather.h"

namespace megatron {

/// Runs `work` (which must not communicate) on every rank; all ranks get all results, by rank, or all throw the Error
/// of the lowest rank that failed. Collective.
template <class Work>
auto together(Communicator& world, const Work& work) {
  decltype(work()) mine{};
  agree(world, [&] { mine = work(); });
  return gather_on_all(world, mine);
}

}  // namespace megatron

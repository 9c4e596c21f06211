// together: work that every rank does for itself, whose results all ranks get.
#pragma once

#include <cstddef>
#include <vector>

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

/// Calls work(i) for each i below `count`, which the ranks take in turns; all ranks get all results, by i, or throw as
/// above. Collective.
template <class Work>
auto by_turns(Communicator& world, std::size_t count, const Work& work) {
  using Result = decltype(work(std::size_t{}));
  const auto ranks = static_cast<std::size_t>(world.size()), rank = static_cast<std::size_t>(world.rank());
  const auto parts = together(world, [&] {
    std::vector<Result> mine;
    for (std::size_t i = rank; i < count; i += ranks) mine.push_back(work(i));
    return mine;
  });
  std::vector<Result> all;
  for (std::size_t i = 0; i < count; ++i) all.push_back(parts[i % ranks][i / ranks]);
  return all;
}

}  // namespace megatron

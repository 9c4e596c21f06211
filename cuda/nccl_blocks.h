// How many thread blocks NCCL may use for each communicator of a rank: ncclConfig_t::maxCTAs.
//
// A kernel of NCCL spins on its multiprocessors until the other ranks' kernels run. If more blocks were in flight than
// fit, kernels could wait for each other's places, each for a rank that waits the same way. So the communicators that
// can be in flight together get fewer blocks than an A100 has multiprocessors; smaller GPUs (A10, L4) have no such
// guarantee. Knows groups by name and role, and neither NCCL nor CUDA.
#pragma once

#include <algorithm>
#include <array>
#include <string_view>

#include "distributed/comm/process_grid.h"

namespace megatron {

/// When a group's collectives run.
enum class NcclUse {
  awaited,     ///< the next operation on the compute stream waits for them, so at most one such group is in flight
  background,  ///< next to the computation, and next to all others
  sets,        ///< as `background`, in place of those: copies divide their sums within sets
};

struct NcclBlocks {
  Group group;
  int blocks;
  NcclUse use;
};

/// Collectives of the groups of ProcessGrid. Awaited ones have the GPU to themselves; under background ones matrix
/// products keep most multiprocessors.
inline constexpr std::array<NcclBlocks, kGroupCount> kNcclBlocks = {{
    {Group::tensor, 32, NcclUse::awaited},
    {Group::context, 16, NcclUse::awaited},
    {Group::data, 16, NcclUse::awaited},  // moves nothing unless it is also the group of copies, whose row counts
    {Group::copies, 16, NcclUse::background},
    {Group::expert, 32, NcclUse::awaited},  // all-to-all
    {Group::expert_copies, 16, NcclUse::background},
    {Group::shards, 16, NcclUse::sets},
    {Group::expert_shards, 8, NcclUse::sets},
    {Group::replicas, 8, NcclUse::sets},
    {Group::control, 2, NcclUse::awaited},   // moves host values alone
    {Group::pipeline, 2, NcclUse::awaited},  // its collectives: scalars. Messages: below
    {Group::model, 2, NcclUse::awaited},     // scalars
    {Group::kv_replicas, 8, NcclUse::awaited},
}};
inline constexpr int kNcclTieBlocks = 8;     ///< for each tie: awaited
inline constexpr int kNcclScalarBlocks = 2;  ///< for the world, which sums scalars: awaited

/// Messages between two ranks: of one direction and channel.
inline constexpr int kNcclMessageBlocks = 8;
/// To and from the next stage and the previous one: activations and their gradients.
inline constexpr int kNcclMessageLanes = 4;
/// Attention's ring: keys and values, and their gradients, to the next context rank and from the previous one. All of
/// them arrive before attention returns, and no awaited group is in flight until then.
inline constexpr int kNcclRingLanes = 4;

/// The blocks of the group with this communicator's name (name_of() in distributed/comm/process_grid.h). Any other is a
/// world.
inline int nccl_blocks(std::string_view name) {
  if (name.starts_with(kTieName)) return kNcclTieBlocks;
  for (const NcclBlocks& row : kNcclBlocks) {
    if (name == name_of(row.group)) return row.blocks;
  }
  return kNcclScalarBlocks;
}

inline constexpr int kFewestMultiprocessors = 108;  ///< among the data-centre GPUs that NCCL is for: an A100

/// The most blocks of one rank that can be in flight at the same time.
constexpr int most_nccl_blocks() {
  int awaited = std::max({kNcclTieBlocks, kNcclScalarBlocks, kNcclRingLanes * kNcclMessageBlocks});
  int background = 0, sets = 0;
  for (const NcclBlocks& row : kNcclBlocks) {
    if (row.use == NcclUse::awaited) awaited = std::max(awaited, row.blocks);
    if (row.use == NcclUse::background) background += row.blocks;
    if (row.use == NcclUse::sets) sets += row.blocks;
  }
  return awaited + std::max(background, sets) + kNcclMessageLanes * kNcclMessageBlocks;
}
static_assert(most_nccl_blocks() < kFewestMultiprocessors);
static_assert([] {
  for (std::size_t i = 0; i < kNcclBlocks.size(); ++i) {
    if (kNcclBlocks[i].group != static_cast<Group>(i)) return false;
  }
  return true;
}());

}  // namespace megatron

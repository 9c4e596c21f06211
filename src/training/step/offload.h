// The memory that optimizer.offload names, for the part of the optimizer's state that is not in the device's.
#pragma once

#include <memory>
#include <vector>

#include "backend/ops/device.h"
#include "config/schema/config.h"
#include "distributed/comm/process_grid.h"
#include "training/optimizer/offloaded_memory.h"
#include "training/step/memory_plan.h"

namespace megatron {

/// Throws Error(configuration) where a device, which computes in the host's memory or has its own, cannot have what
/// [optimizer] asks for.
void require_offload(const OptimizerConfig& optimizer, bool on_host_memory);

/// The folder with the files of "file": the run's own if the configuration names none, or the nearest above it that
/// exists.
std::string offload_folder(const Config& config);

/// Bytes that the files of "file" take in that folder: those of all ranks in the run's own, which all nodes share, else
/// those of the `ranks_here` of one node. 0 where there are none.
double bytes_of_state_files(const Config& config, const std::vector<MemoryPlan>& stages, int ranks_here);

/// This number of bytes where the configuration says; null for none. Collective over the world, and throws on all ranks
/// alike: as require_offload(), Error(configuration) where the host has not that much memory, Error(filesystem) where a
/// folder has no room for a file.
std::unique_ptr<OffloadedMemory> make_offloaded_memory(const Config& config, const ProcessGrid& grid, Device& device,
                                                       std::size_t bytes);
/// The same of a counting device: addresses.
std::unique_ptr<OffloadedMemory> count_offloaded_memory(const Config& config, Device& device, std::size_t bytes);

}  // namespace megatron

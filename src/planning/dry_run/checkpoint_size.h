// How large the checkpoints of a run will be, and how long one takes to write: for plans, before there is one.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "base/system/disk_speed.h"
#include "config/schema/config.h"
#include "training/step/memory_plan.h"

namespace megatron {

/// Bytes of all files of a checkpoint of the resolved `config`; `stages`: plan_stages(). The numbers in them are
/// counted, the tables and the manifest are made; of more than 64 ranks the tables of some stand for all.
std::int64_t planned_checkpoint_bytes(const Config& config, const std::vector<MemoryPlan>& stages);

/// Bytes that must be free before one is written, and so at the start: room_for_checkpoint() of these numbers.
std::int64_t free_bytes_for_checkpoint(const Config& config, const std::vector<MemoryPlan>& stages);

/// Seconds that one process, or one disk, takes for this number of bytes.
double save_seconds(std::int64_t bytes, const DiskSpeed& disk);

/// The most checkpoints on the disk at a time: the next one is complete before the oldest goes. `run_seconds`: how long
/// the run is expected to take. Nothing if that is not known and decides.
std::optional<std::int64_t> checkpoints_at_a_time(const Config& config, std::optional<double> run_seconds);

}  // namespace megatron

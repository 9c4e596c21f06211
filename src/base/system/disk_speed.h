// How fast a disk takes what is written and synced: a measurement for estimates.
#pragma once

#include <optional>
#include <string>

namespace megatron {

struct DiskSpeed {
  double seconds_per_sync = 0;  ///< for a file of a few bytes
  double bytes_per_second = 0;  ///< written by one process, sync included
};

/// Writes 8 MiB into a file without a name in this folder, which must exist, and which holds nothing new afterwards.
/// Nothing where the file system takes none; never an error.
std::optional<DiskSpeed> measure_disk(const std::string& folder);

}  // namespace megatron

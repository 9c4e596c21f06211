// Checks of the folders that a start of training needs, before anything is made: for --dry-run and for the start.
#pragma once

#include <string>
#include <vector>

#include "config/schema/config.h"

namespace megatron {

/// Throws Error(filesystem) if run.directory, or the nearest path above it that exists, is no folder.
void require_run_folder(const std::string& directory);

/// Throws Error(checkpoint) if the checkpoint that checkpoint.load or checkpoint.initialize_from names is not there or
/// not complete, by its manifest and sizes. Incomplete ones that are passed over get a line in `warnings`.
void require_named_checkpoint(const CheckpointConfig& checkpoint, std::vector<std::string>& warnings);

/// Obstacles to a start, each half a sentence, and warnings, as far as a plan can tell: contents of files are not
/// verified.
struct StartPaths {
  std::vector<std::string> obstacles, warnings;
};
StartPaths examine_start_paths(const Config& config);

}  // namespace megatron

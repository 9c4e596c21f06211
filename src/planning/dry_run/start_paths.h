// Checks of the folders that a start of training needs, before anything is made: for --dry-run and for the start.
#pragma once

#include <string>
#include <vector>

#include "config/schema/config.h"
#include "training/datasets/datasets.h"

namespace megatron {

/// Throws Error(filesystem) if run.directory, or the nearest path above it that exists, is no folder.
void require_run_folder(const std::string& directory);

/// Throws Error(checkpoint) if the checkpoint that checkpoint.load or checkpoint.initialize_from names is not there or
/// not complete, by its manifest and sizes. Incomplete ones that are passed over get a line in `warnings`.
/// Returns its folder; empty if none is named.
std::string require_named_checkpoint(const CheckpointConfig& checkpoint, std::vector<std::string>& warnings);

/// Obstacles to a start, each half a sentence, warnings, and whole lines about the checkpoint that it begins with: is
/// it of this model and of batches of the same sizes, as its manifest has them? The contents of its files are not read.
struct StartPaths {
  std::vector<std::string> obstacles, warnings, lines;
};
/// `config` resolved. `datasets` null: the vocabulary is not known, nor compared.
StartPaths examine_start_paths(const Config& config, const Datasets* datasets);

}  // namespace megatron

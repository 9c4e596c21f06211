// Who writes what of a checkpoint: the one rule for a run's saves and for the tools that cut checkpoints anew;
// and what a saved configuration says of the model alone, for all who use a checkpoint without its run.
#pragma once

#include <vector>

#include "checkpoint/store/checkpoint.h"
#include "config/schema/config.h"
#include "distributed/comm/process_grid.h"

namespace megatron {

/// A part of a parameter that a rank writes; a range of the store's flat buffers.
struct SavedPart {
  const Parameter* parameter = nullptr;
  FlatRange range;
};

/// For every parameter of the store that the rank at `at` owns, its share among the copies or, with the distributed
/// optimizer, the elements whose state it keeps. Over the grid each element comes once. The store is this rank's, or
/// that of another of its copies.
std::vector<SavedPart> saved_parts(const ParameterStore& store, const GridCoordinates& at, const GridShape& shape);

/// The same for states, whose ranges are of their elements.
struct SavedState {
  const ModelState* state = nullptr;
  FlatRange range;
};
std::vector<SavedState> saved_states(const ParameterStore& store, const GridCoordinates& at, const GridShape& shape);

/// Slices, without memory, that rank `rank` of its grid writes when it trains the resolved `config`.
std::vector<TensorSlice> saved_layout(const Config& config, int rank);

/// The configuration of the run that saved a checkpoint. Error(checkpoint) if the checkpoint has none.
Config saved_config(const CheckpointReader& checkpoint);

/// The model of a run: its sizes, the precision it computes in, and its head, on one rank, not resolved. All else is as
/// in a new run, so that no rule about layouts, batches, updates, data, saves or reports refuses what was trained.
Config config_of_model(const Config& run);

/// The model and optimizer that a checkpoint is of, on another grid: resolved, batches and lengths being any that the
/// grid can do. Throws Error(checkpoint) if the checkpoint has none, Error(configuration) with the rules that the grid
/// breaks.
Config config_for_layout(const CheckpointReader& checkpoint, const GridShape& shape, int virtual_stages);

}  // namespace megatron

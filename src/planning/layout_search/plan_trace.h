// The step that a plan predicts as a timeline in the format of a run's trace.json, to be opened next to it: one process
// per stage of the pipeline, whose ranks all do the same.
#pragma once

#include "base/system/durable_file.h"
#include "planning/layout_search/search.h"

namespace megatron {

/// Errors: filesystem.
void write_plan_trace(const PlannedLayout& layout, const Hardware& hardware, const OutputFile& output);

}  // namespace megatron

// Operations that are written down, each with its time, by a TraceRecorder, which is also the profiler that they name.
#pragma once

#include <memory>

#include "backend/ops/ops.h"
#include "base/core/trace_recorder.h"

namespace megatron {

/// `ops`, whose verbs `recorder` records; it passes its ranges on to their profiler, if they have one.
std::unique_ptr<Ops> with_trace(std::unique_ptr<Ops> ops, std::shared_ptr<TraceRecorder> recorder);

}  // namespace megatron

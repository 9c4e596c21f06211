// A whole training run: from an input file's configuration to an exit code. Checks, prepares the run directory, says
// what will happen, and hands over to the TrainingLoop. Collective over `world`.
#pragma once

#include "distributed/process/stop_signals.h"
#include "training/loop/run_start.h"

namespace megatron {

/// `given` as parsed (not resolved). Returns 0, or kExitStoppedEarly when a signal, a time limit or the
/// stop file ended it, with a good checkpoint.
/// Throws the same Error on all ranks, or on one (whose main must then abort the job).
int run_training(const Config& given, Communicator& world, const RunEnvironment& environment, StopSignals& signals);

}  // namespace megatron

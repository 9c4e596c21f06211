// A whole training run: from an input file's configuration to an exit code. Checks, prepares the run directory, says
// what will happen, and hands over to the TrainingLoop. Collective over `world`.
#pragma once

#include <optional>
#include <string>

#include "comm/communicator.h"
#include "config/config.h"
#include "train/stop_signals.h"

namespace megatron {

struct RunEnvironment {
  std::string host;                  ///< this rank's
  std::string version;               ///< the program's, for the banner
  int local_rank = 0;                ///< among the ranks on this host
  double started = 0;                ///< when the program started, by Timers::steady_seconds
  std::string job;                   ///< of the batch system, for the banner; empty outside one
  std::optional<double> job_ends{};  ///< seconds since 1970
};

/// `config` as parsed (not resolved). Returns 0, or kExitStoppedEarly when a signal, a time limit or the
/// stop file ended it, with a good checkpoint.
/// Throws the same Error on all ranks, or on one (whose main must then abort the job).
int run_training(Config config, Communicator& world, const RunEnvironment& environment, StopSignals& signals);

}  // namespace megatron

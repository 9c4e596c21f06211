// The start of every run, whatever it is for: ensures that all ranks have the same input file and the same data, and
// that training it is supported. Collective over the world.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "distributed/comm/communicator.h"
#include "training/datasets/datasets.h"
#include "training/datasets/evaluation_tasks.h"

namespace megatron {

class HangWatch;

struct RunEnvironment {
  std::string host;                  ///< this rank's
  std::string version;               ///< the program's, for the banner
  int local_rank = 0;                ///< among the ranks on this host: which of its devices is this rank's
  double started = 0;                ///< when the program started, by Timers::steady_seconds
  std::string job;                   ///< the job in the batch system, for the banner; empty outside one
  std::optional<double> job_ends{};  ///< seconds since 1970
  bool fresh = false;                ///< start over in a new directory where run.directory has a run
  HangWatch* hang_watch = nullptr;   ///< is told the grid; may be absent
  std::vector<std::string> notes{};  ///< warnings of the command line and the input file, for rank 0's log
};

/// A configuration that is complete and no longer changes, and its data.
struct ResolvedRun {
  Config config;
  std::unique_ptr<Datasets> datasets;
  std::vector<TrainingTask> tasks;
};

/// `config` as parsed; comes back resolved for the world's ranks and its run.device chosen, with warnings for rank 0's
/// log. Opens the data and the files of evaluation tasks; where a run starts over (`fresh`), as if run.directory had no
/// checkpoints. Throws the same Error on all ranks.
ResolvedRun agree_on_run(Config config, Communicator& world, std::vector<std::string>& warnings, bool fresh = false);

}  // namespace megatron

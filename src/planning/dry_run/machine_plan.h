// The part of a plan that depends on the machine: whether a run fits its memory, cores and disk, how large checkpoints
// are, how often the data is passed over, and about how long it takes. For --dry-run and a run's banner.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/system/disk_speed.h"
#include "config/rules/resolve.h"
#include "planning/dry_run/time_estimate.h"

namespace megatron {

struct Machine {
  std::string name;
  int cores = 1;
  std::optional<std::size_t> free_memory{};  ///< for ranks to come, with all that they hold; unknown: enough
  std::optional<std::int64_t> free_disk{};   ///< in run.directory; unknown: enough
  MachineSpeed speed{};                      ///< 0: not measured
  std::optional<DiskSpeed> disk{};           ///< the one with run.directory; unknown: not measured
};

/// This one, without its speed.
Machine examine_machine(const Config& config);
/// This one. Its speed is measured if the configuration computes on the CPU: about a tenth of a second.
Machine measure_machine(const Config& config);

struct MachinePlan {
  std::string text;                    ///< whole lines
  std::vector<std::string> obstacles;  ///< to training here, each half a sentence; empty: none
  std::vector<std::string> warnings;   ///< threats to a run that can begin
};

/// `config` resolved; `data` null: planned without. `ranks_here`: of all ranks, those on this machine. More than
/// most_ranks_here() of them are taken to be meant for other machines, of which nothing is said.
MachinePlan plan_for_machine(const Config& config, const std::vector<MemoryPlan>& stages, const DataFacts* data,
                             const Machine& machine, int ranks_here);

/// A line about checkpoints of `size` bytes (planned_checkpoint_bytes()): how many there are at a time, and how long a
/// save takes. `machine` null: on some cluster. `run_seconds`: of the whole run, if that is known.
std::string describe_disk(const Config& config, std::int64_t size, const Machine* machine,
                          std::optional<double> run_seconds);

/// Ranks that a plan supposes to be tried on one machine, however slow.
int most_ranks_here(int cores);

}  // namespace megatron

// How long a step of a run takes on given hardware, and what its ranks hold. Every distinct stage of the pipeline is
// played once, with few micro-batches, by the program's own code (recording.h); a clock gives the seconds of each
// action, and simulate() plays the schedule of the whole step with them.
#pragma once

#include <string>
#include <vector>

#include "config/schema/config.h"
#include "planning/layout_search/clock.h"
#include "training/pipeline/simulate.h"

namespace megatron {

/// A run's layout, played: what clocks and reports need of it.
struct RecordedLayout {
  Config config;  ///< resolved
  struct PlayedStage {
    Recording recording = {};
    std::vector<Action> actions = {};  ///< that were played
    MemoryPlan memory = {};
  };
  std::vector<PlayedStage> played = {};   ///< the first of each kind of stage, which holds most
  std::vector<int> stage_to_played = {};  ///< by stage
  std::vector<std::vector<Action>> schedules = {};
  std::vector<bool> crosses_nodes = {};  ///< by stage: whether the next one is on another node
  int micro_batches = 1;                 ///< per data rank, in the largest step

  std::size_t most_bytes() const;  ///< bytes of the fullest stage
  const PlayedStage& stage(int number) const;
  void set_micro_batches(int count);  ///< and the schedules: for a step of another batch size
};

/// The largest step of `config`, which must be resolved, on nodes of this many ranks; memory is for the smaller ones,
/// too. With `limit_bytes` above 0,
/// stages are played only until one needs more: then `played` is incomplete, as fits() says.
RecordedLayout record_layout(const Config& config, int ranks_per_node, double limit_bytes = 0);
bool fits(const RecordedLayout& layout, double limit_bytes);

struct StepTime {
  double seconds = 0;           ///< for a whole step
  double schedule_seconds = 0;  ///< part of it, from the first forward to the last stage's last backward
  double bubble = 0;            ///< share of the schedule in which stages compute nothing
  /// The stage with the most to do. Its costs, idle time, sums and update make up the step.
  int busiest_stage = 0;
  CostSeconds costs;        ///< costs of its actions
  double idle_seconds = 0;  ///< it waits for other stages, or for others' sums
  double sums_seconds = 0;  ///< gradient sums after its last action
  double update_seconds = 0;
  double tokens_per_second = 0;
  double model_flops_share = 0;       ///< MFU: of all ranks' peak, by the convention of models/families/flops.h
  std::vector<double> stage_seconds;  ///< by stage: its actions
};

StepTime step_time(const RecordedLayout& layout, const Hardware& hardware);

/// The time of the run's train.steps, the first of which have smaller batches where the batch grows. With a curriculum,
/// time is in proportion to tokens.
double run_seconds(const RecordedLayout& layout, const Hardware& hardware);

/// The spans of that step's schedule, for those who draw it.
Simulation simulate_step(const RecordedLayout& layout, const Hardware& hardware);

}  // namespace megatron

// CountingJob: one rank of a job whose device, operations and communicators count, so that the real objects can be
// constructed on it and played. For plans: memory_plan.cpp learns what a run holds, src/planning/layout_search how long
// it takes.
//
// What is played may be listened to: a StepListener makes the operations and the tensors' communicators, and sees all
// that they are asked for.
#pragma once

#include <memory>
#include <vector>

#include "distributed/comm/counting_communicator.h"
#include "models/batch/batch_layout.h"
#include "training/step/replica.h"

namespace megatron {

class StepListener {
 public:
  virtual ~StepListener() = default;
  /// Operations that pass all verbs on to these.
  virtual std::unique_ptr<Ops> around(std::unique_ptr<CountingOps> ops) = 0;
  /// A counting communicator of the world's tensors; the grid's groups are split off it.
  virtual std::unique_ptr<CountingCommunicator> tensors(int rank, int size, bool staged) = 0;
};

struct CountingJob {
  CountingJob(const Config& config, const GridShape& shape, const GridCoordinates& at, TransportKind transport_kind,
              StepListener* listener = nullptr);

  TransportKind transport;
  CountingCommunicator world;
  std::unique_ptr<CountingCommunicator> tensors;
  ProcessGrid grid;
  TrafficMeter passes, sums;  ///< forward and backward; gradients
  Backend backend;
  CountingOps* ops = nullptr;  ///< the backend's, or those that it passes verbs on to
};

/// Micro-batches of the configured size without memory; their addresses are the arena's.
std::vector<MicroBatch> sizing_micro_batches(const Config& config, const ModelFamily& family, std::int64_t count,
                                             Arena& arena);

/// A replica that was constructed on a job, with the configuration it was constructed for.
struct PlayedReplica {
  const Config& config;
  CountingJob& job;
  Replica& replica;
  const ModelFamily& family;
};

/// A training step of the largest size, with what it computes and moves, but for the sums of an update.
StepSums play_step(const PlayedReplica& played, std::span<const double> counts);

/// Memory of a replica that has played a step, without what a step computes and moves. Plays evaluations too where
/// those may take more than a step.
MemoryPlan memory_of(const PlayedReplica& played);

}  // namespace megatron

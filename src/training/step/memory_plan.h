// MemoryPlan: what the program's own arenas and buffers hold on a rank, to the byte, and what a step computes and
// moves. plan_memory() learns it from a Replica that is constructed on a counting device, with counting operations and
// communicators, and plays a step. Knows the ranks of a plan by their coordinates; needs neither data nor launcher.
#pragma once

#include <vector>

#include "config/schema/config.h"
#include "distributed/comm/process_grid.h"
#include "models/families/family.h"
#include "training/pipeline/executor.h"
#include "training/step/compute.h"

namespace megatron {

/// Bytes of a rank by what they are for.
struct MemoryUse {
  std::size_t weights = 0, gradients = 0, optimizer = 0;
  std::size_t activations = 0;    ///< all micro-batches in flight
  std::size_t communication = 0;  ///< gradients on their way to the previous stage, and staging of reductions
                                  ///< (distributed/comm/staging.h); MPI's own is not known
  std::size_t scratch = 0;        ///< temporaries, those of a recomputed layer among them, and the sums of the loss
  std::size_t kernels = 0;        ///< workspace of the backend's verbs
  std::size_t batch = 0;          ///< tokens, targets and positions of a step, training's and evaluation's in turn,
                                  ///< and results of evaluations
  std::size_t snapshot = 0;       ///< copies that checkpoints are written from in the background (checkpoint.async)
  std::size_t trace = 0;          ///< events of the steps that are traced (run.trace_steps)
  std::size_t host = 0;           ///< staging of communication, snapshot and trace, where the rest is a device's, and
                                  ///< offloaded states
  std::size_t host_states = 0;    ///< in `host`: the optimizer's state that is offloaded there
  std::size_t file = 0;           ///< the optimizer's state in a file, whose pages leave memory

  /// Without `host` and `file`.
  std::size_t total() const {
    return weights + gradients + optimizer + activations + communication + scratch + kernels + batch + snapshot + trace;
  }
  /// Adds what is always the host's memory.
  void add_snapshot(std::size_t bytes, bool on_host_memory) { (on_host_memory ? snapshot : host) += bytes; }
  void add_trace(std::size_t bytes, bool on_host_memory) { (on_host_memory ? trace : host) += bytes; }
  /// Adds the optimizer's state that is not in `optimizer`.
  void add_offloaded(std::size_t bytes, const OptimizerConfig& config) {
    if (config.offload == "file") {
      file += bytes;
    } else {
      host += bytes;
      host_states += bytes;
    }
  }
  std::size_t offloaded() const { return host_states + file; }  ///< states that are not in `optimizer`
  bool operator==(const MemoryUse&) const = default;
};

/// A rank's plan.
struct MemoryPlan : MemoryUse {
  MemoryUse fullest;                  ///< with the optimizer and the snapshot of the copies that have most of them:
                                      ///< shards differ in their numbers and, by rule, in the states that these have
  std::int64_t parameters = 0;        ///< elements on this rank
  std::int64_t updated = 0;           ///< elements of the flat buffers that this rank updates, gaps included
  std::int64_t updated_states = 0;    ///< numbers of the optimizer's states that change with them
  std::int64_t stage_parameters = 0;  ///< elements of the whole model that this stage counts, over its tensor ranks and
                                      ///< those that share its experts out
  std::int64_t stage_numbers = 0;     ///< the same with the optimizer's states, as checkpoints have them
  ExecutorMemory passes;              ///< activations by slot, gradients between stages
  std::vector<StagingPlan> staging;   ///< for each of the grid's groups
  double matmul_flops = 0, attention_flops = 0;  ///< one step's passes, this rank
  double function_bytes = 0;                     ///< read and written by the passes' forwards of norms and activations
  double update_flops = 0;                       ///< products of its update
  double forward_and_backward_bytes = 0;         ///< sent by this rank in a step: tensor, expert and pipeline traffic
  double gradient_bytes = 0;                     ///< sent by this rank in a step: gradient sums, and values to copies

  int slots() const { return static_cast<int>(passes.slots.size()); }
};

/// Whether checkpoints are written in the background, which takes memory from the start.
bool saves_in_background(const Config& config);

/// Plays one training step of the rank at `at` without memory. The configuration must be resolved.
MemoryPlan plan_memory(const Config& config, const GridShape& shape, const GridCoordinates& at,
                       TransportKind transport);
/// With the stages and the terms of the loss that `family` says.
MemoryPlan plan_memory(const Config& config, const GridShape& shape, const GridCoordinates& at, TransportKind transport,
                       const ModelFamily& family);
/// With the transport that the configuration asks for.
MemoryPlan plan_memory(const Config& config, const GridShape& shape, const GridCoordinates& at);

}  // namespace megatron

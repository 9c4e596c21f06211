// BatchMemory: the device memory of one step's tokens, targets and positions, enough for the largest batch.
// DeviceBatches: the micro-batches of a set of samples, step after step, brought there; reads ahead, in host memory,
// through GptBatches. Stages in the middle of a pipeline need no tokens and read none.
//
// Training and evaluation take turns in the same memory: whoever asked for a step last has it there.
#pragma once

#include <memory>
#include <span>

#include "comm/process_grid.h"
#include "config/config.h"
#include "data/batches.h"
#include "nn/context.h"
#include "ops/device.h"
#include "train/datasets.h"

namespace megatron {

class BatchMemory {
 public:
  BatchMemory(const Config& config, Device& device);

  Device& device() { return device_; }
  /// The passes over what lies here have been called: once they are done the next may be put in its place.
  void mark_read() { free_ = device_.mark(); }
  Ticket free() const { return free_; }
  std::size_t bytes() const { return memory_.bytes(); }

  /// Of the first s tokens of every sample: where micro-batch k's tokens and targets go, i32 [s, b].
  Tensor tokens(std::size_t k, std::int64_t s) const { return columns_[k].tokens.slice(0, 0, s); }
  Tensor targets(std::size_t k, std::int64_t s) const { return columns_[k].targets.slice(0, 0, s); }
  ConstTensor positions(std::int64_t s) const { return positions_.slice(0, 0, s); }        ///< i32 [s]
  ConstTensor position_ids(std::int64_t s) const { return position_ids_.slice(0, 0, s); }  ///< i32 [s, b]

 private:
  struct Columns {
    Tensor tokens, targets;
  };

  Device& device_;
  Ticket free_;
  Buffer memory_;
  Tensor positions_, position_ids_;
  std::vector<Columns> columns_;  // by micro-batch of the largest batch
};

class DeviceBatches {
 public:
  /// Delivers what `plan` says, step after step from 0: at most train.global_batch_size samples of at most
  /// model.sequence_length tokens. The memory must outlive it.
  DeviceBatches(const Config& config, const ProcessGrid& grid, BatchMemory& memory, const SampleSet& samples,
                StepPlan plan);

  /// The next step's micro-batches, for operations that are called from now on; valid until the next call of anybody
  /// who shares the memory, and told to it when they have been read. Targets count for loss_scale / targets() each in
  /// the gradient.
  std::span<const MicroBatch> next(double loss_scale = 1);
  /// Targets in the global batch that next() gave.
  double targets() const { return targets_; }

 private:
  BatchMemory& memory_;
  bool reads_;
  StepPlan plan_;
  std::int64_t step_ = 0, longest_;
  std::int64_t samples_together_;  // of one micro-batch on all data ranks
  double targets_ = 0;
  Ticket uploaded_;
  std::vector<MicroBatch> micro_batches_;
  std::unique_ptr<GptBatches> reader_;
};

}  // namespace megatron

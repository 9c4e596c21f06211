// DeviceBatches: a step's micro-batches where the model can read them. Owns the device memory of tokens, targets and
// positions, enough for the largest batch; reads ahead through GptBatches. Stages in the middle of a pipeline need no
// tokens and read none.
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

class DeviceBatches {
 public:
  /// Delivers what `plan` says, step after step from 0: at most train.global_batch_size samples of at most
  /// model.sequence_length tokens.
  DeviceBatches(const Config& config, const ProcessGrid& grid, Device& device, const SampleSet& samples, StepPlan plan);

  /// The next step's micro-batches; valid until the next call. Targets count for loss_scale / targets() each in the
  /// gradient.
  std::span<const MicroBatch> next(double loss_scale = 1);
  /// Targets in the global batch that next() gave.
  double targets() const { return targets_; }
  std::size_t bytes() const { return memory_.bytes(); }

 private:
  /// Tokens and targets of the largest batch, by micro-batch: i32 [s, b].
  struct Columns {
    Tensor tokens, targets;
  };

  Device& device_;
  bool reads_;
  StepPlan plan_;
  std::int64_t step_ = 0, samples_together_;  // samples of one micro-batch on all data ranks
  double targets_ = 0;
  Buffer memory_;
  Tensor positions_, position_ids_;
  std::vector<Columns> columns_;
  std::vector<MicroBatch> micro_batches_;
  std::unique_ptr<GptBatches> reader_;
};

}  // namespace megatron

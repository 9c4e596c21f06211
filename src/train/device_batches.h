// DeviceBatches: a step's micro-batches where the model can read them. Owns the device memory of tokens, targets and
// positions; reads ahead through GptBatches. Stages in the middle of a pipeline need no tokens and read none.
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
  /// Delivers the samples from `first_sample` on, a global batch a step, for `steps` steps.
  DeviceBatches(const Config& config, const ProcessGrid& grid, Device& device, const SampleSet& samples,
                std::int64_t first_sample, std::int64_t steps);

  /// The next step's micro-batches; valid until the next call. Targets count for 1 / `targets` each in the gradient.
  std::span<const MicroBatch> next();
  double targets_per_step() const { return targets_; }
  std::size_t bytes() const { return memory_.bytes(); }

 private:
  Device& device_;
  bool reads_;
  double targets_;
  Buffer memory_;
  std::vector<MicroBatch> micro_batches_;
  std::vector<Tensor> tokens_, targets_of_;  // by micro-batch
  std::unique_ptr<GptBatches> reader_;
};

}  // namespace megatron

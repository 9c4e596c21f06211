// RandomBatch: what a benchmark trains on instead of data: one micro-batch of pseudo-random tokens on the device, a
// function of the data rank alone, without documents, padding and weights of losses. Owns their memory.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "backend/ops/device.h"
#include "config/schema/config.h"
#include "models/batch/batch_layout.h"
#include "models/families/loss_terms.h"

namespace megatron {

class RandomBatch {
 public:
  /// Has the configured micro-batch size and sequence length, of which a context rank has its rows; it is the whole
  /// step of this data rank.
  RandomBatch(const Config& config, int data_rank, int context_rank, Device& device);
  std::span<const MicroBatch> micro_batches() const { return {&batch_, 1}; }
  /// The targets of the global batch, and no loss scale. Valid as long as this object.
  LossScaling loss() const { return {.counts = loss_counts_}; }

 private:
  BatchBuffer memory_;
  MicroBatch batch_;
  std::vector<double> loss_counts_;  // by term of the loss
};

}  // namespace megatron

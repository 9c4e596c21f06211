// BatchMemory: the device memory of one step's micro-batches, enough for the largest batch. DeviceBatches: the
// micro-batches of a set of samples, step after step, brought there; reads ahead, in host memory, through BatchReader.
// A rank reads and uploads only what its stages read, and counts of losses that data alone tells.
//
// Training and evaluation take turns in the same memory: it holds the step that was asked for last.
#pragma once

#include <functional>
#include <memory>
#include <span>

#include "backend/ops/device.h"
#include "config/schema/config.h"
#include "data/samples/batches.h"
#include "distributed/comm/process_grid.h"
#include "models/batch/batch_layout.h"

namespace megatron {

class BatchMemory {
 public:
  /// Writes the row numbers of the longest sequences.
  BatchMemory(const BatchLayout& layout, std::int64_t micro_batches, Device& device);

  Device& device() { return device_; }
  const BatchBuffer& buffer() const { return buffer_; }
  /// The passes over what lies here have been called: once they are done the next may be put in its place.
  void mark_read() { free_ = device_.mark(); }
  /// Writes the row numbers of sequences of these sizes, where others are there that do not hold for them.
  void number_rows(const BatchSizes& sizes);
  Ticket free() const { return free_; }
  std::size_t bytes() const { return buffer_.bytes(); }

 private:
  Device& device_;
  Ticket free_;
  std::int64_t numbered_;  // rows of the main stream when numbers were written
  BatchBuffer buffer_;
};

class DeviceBatches {
 public:
  /// Delivers what `plan` says, step after step from 0: at most train.global_batch_size samples of at most
  /// model.sequence_length tokens. `padded`: some samples of the plan only fill a batch. reads(field): this rank's
  /// stages do. Grid, memory and samples must outlive it.
  DeviceBatches(const Config& config, const ProcessGrid& grid, BatchMemory& memory, Samples& samples, BatchPlan plan,
                bool padded, const std::function<bool(const BatchField&)>& reads);

  /// The next step's micro-batches, for operations that are called from now on; valid until the next call on any
  /// object that shares the memory, which waits until they have been read.
  std::span<const MicroBatch> next();
  const GlobalBatch& samples() const { return samples_; }  ///< samples of the step that next() gave
  /// Counts that the samples give for their losses, by term; a single number is every term's. Valid until the next
  /// step.
  struct LossCounts {
    std::span<const double> values;
    bool complete = true;  ///< for the global batch; else for this data rank's samples alone
  };
  LossCounts loss_counts() const { return {loss_counts_, complete_counts_}; }

 private:
  void start_uploads(const MicroBatch& from, std::size_t k);

  const ProcessGrid& grid_;
  BatchMemory& memory_;
  const Samples& source_;
  BatchLayout layout_;                // the part of the memory's that these samples have
  std::vector<BatchField> uploaded_;  // the part of it that this rank's stages read
  BatchPlan plan_;
  std::int64_t step_ = 0;
  std::int64_t samples_together_;  // in one micro-batch on all data ranks
  GlobalBatch samples_;
  std::vector<double> loss_counts_;
  bool complete_counts_ = true;
  Ticket upload_done_;
  std::vector<MicroBatch> micro_batches_;
  std::unique_ptr<BatchReader> reader_;  // where this rank needs one
};

}  // namespace megatron

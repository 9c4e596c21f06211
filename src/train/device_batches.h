// BatchMemory: the device memory of one step's tokens, targets and positions, and of what else the micro-batches have,
// enough for the largest batch.
// DeviceBatches: the micro-batches of a set of samples, step after step, brought there; reads ahead, in host memory,
// through BatchReader. Stages in the middle of a pipeline need no tokens and read none, unless they have to know where
// documents begin or how much a loss counts: that is made of the tokens wherever it is needed.
//
// Training and evaluation take turns in the same memory: it holds the step that was asked for last.
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
  /// Empty if the configuration has no use for them: i32 [b, s], i32 [s, b] (within documents) and f32 [s, b].
  Tensor document_starts(std::size_t k, std::int64_t s) const;
  Tensor document_position_ids(std::size_t k, std::int64_t s) const { return first_rows(columns_[k].position_ids, s); }
  Tensor weights(std::size_t k, std::int64_t s) const { return first_rows(columns_[k].weights, s); }

 private:
  struct Columns {
    Tensor tokens, targets, document_starts, position_ids, weights;
  };
  static Tensor first_rows(const Tensor& tensor, std::int64_t s) { return tensor ? tensor.slice(0, 0, s) : Tensor(); }

  Device& device_;
  Ticket free_;
  Buffer memory_;
  Tensor positions_, position_ids_;
  std::vector<Columns> columns_;  // by micro-batch of the largest batch
};

class DeviceBatches {
 public:
  /// Delivers what `plan` says, step after step from 0: at most train.global_batch_size samples of at most
  /// model.sequence_length tokens. `contents` are no more than training's, and weights. Grid and memory must outlive
  /// it.
  DeviceBatches(const Config& config, const ProcessGrid& grid, BatchMemory& memory, const SampleSet& samples,
                BatchPlan plan, const BatchContents& contents);

  /// The next step's micro-batches, for operations that are called from now on; valid until the next call of anybody
  /// who shares the memory, and told to it when they have been read. Losses count for loss_scale / loss_count() each in
  /// the gradient. Collective over the data ranks where losses have weights; Error(data) if all of them are zero.
  std::span<const MicroBatch> next(double loss_scale = 1);
  /// Of the global batch that next() gave: its targets, or what their weights say.
  double loss_count() const { return loss_count_; }

 private:
  void start_uploads(const HostMicroBatch& from, std::size_t k, std::int64_t s);
  void upload(ConstTensor from, const Tensor& to);

  const ProcessGrid& grid_;
  BatchMemory& memory_;
  bool has_weights_, reads_;
  BatchPlan plan_;
  std::int64_t step_ = 0, longest_;
  std::int64_t samples_together_;  // of one micro-batch on all data ranks
  double loss_count_ = 0;
  Ticket uploaded_;
  std::vector<MicroBatch> micro_batches_;
  std::unique_ptr<BatchReader> reader_;
};

}  // namespace megatron

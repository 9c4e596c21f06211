// A whole model on one rank that only looks ahead: fp32, no dropout, no cache. For text from a checkpoint, and for the
// comparison of two forms of the same weights.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "checkpoint/checkpoint.h"
#include "comm/process_grid.h"
#include "config/config.h"
#include "model/family.h"
#include "train/compute.h"

namespace megatron {

/// The configuration a checkpoint was trained with, for one rank. Error(checkpoint) if it has none.
Config config_for_inference(const CheckpointReader& checkpoint);

class InferenceModel {
 public:
  /// `config` resolved for one rank, which `world` has; computes where it is told. Weights are anything until they are
  /// written through values().
  InferenceModel(Config config, Communicator& world, Compute compute);

  const Config& config() const { return config_; }
  /// All weights, whole, as views on the device.
  std::vector<Piece> values() const;
  /// Next-token logits behind each token from number `first_row` on, [rows, vocab_size], row-major.
  void logits(std::span<const std::int32_t> tokens, std::int64_t first_row, std::vector<float>& logits);

 private:
  Config config_;
  Compute compute_;
  std::unique_ptr<ProcessGrid> grid_;
  ParameterStore store_;
  std::unique_ptr<TensorRegion> region_;
  Stages stages_;  // one: the whole model
  Buffer integers_, saved_memory_, scratch_memory_;
};

}  // namespace megatron

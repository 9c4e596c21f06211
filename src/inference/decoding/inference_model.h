// A whole model on one rank that only runs forward: weights without gradients, in any precision; no dropout, no cache.
// For text from a checkpoint, and for the comparison of two forms of the same weights.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "checkpoint/store/checkpoint.h"
#include "config/schema/config.h"
#include "distributed/comm/process_grid.h"
#include "models/families/family.h"
#include "training/step/compatibility.h"
#include "training/step/compute.h"

namespace megatron {

/// The configuration of a checkpoint's model alone, for tensor × pipeline ranks. Error(checkpoint) if it has none,
/// Error(configuration) if the model cannot be shared like that.
Config config_for_inference(const CheckpointReader& checkpoint, std::int64_t tensor = 1, std::int64_t pipeline = 1);

/// The task that the model was fine-tuned for; not given() where it was not. Errors as config_for_inference().
TaskConfig task_of(const CheckpointReader& checkpoint);

/// The ids under kEndTokensKey of what a checkpoint's state has besides; none if it does not say.
std::vector<std::int32_t> end_tokens_of(const CheckpointReader& checkpoint);

class InferenceModel {
 public:
  /// `config` resolved for one rank, which `world` has; computes where it is told, in f32, bf16 or f16. Weights are
  /// anything until load() or until they are written through values().
  InferenceModel(Config config, Communicator& world, Compute compute, DType type = DType::f32);

  const Config& config() const { return config_; }
  /// Reads the weights, f32 in every checkpoint, and rounds them to this model's precision; a few parameters at a time
  /// are in memory in both. Errors as CheckpointReader::read().
  void load(Communicator& world, const CheckpointReader& checkpoint);
  /// All weights of an f32 model, whole, as views on the device.
  std::vector<TensorSlice> values() const;
  /// Bytes that the weights take on the device.
  std::size_t weight_bytes() const { return store_.values().bytes() + store_.constant_bytes(); }
  /// Next-token logits after each token from number `first_row` on, [rows, vocab_size], row-major. `tokens` are those
  /// of a decoder where the model also has an encoder, which reads `encoder_tokens`.
  void logits(std::span<const std::int32_t> tokens, std::int64_t first_row, std::vector<float>& logits,
              std::span<const std::int32_t> encoder_tokens = {});

 private:
  MicroBatch upload(std::span<const std::int32_t> tokens, std::span<const std::int32_t> encoder_tokens);

  Config config_;
  Compute compute_;
  std::unique_ptr<ProcessGrid> grid_;
  ParameterStore store_;
  std::unique_ptr<TensorRegion> region_;
  Stages stages_;  // one: the whole model
  DType type_;
  BatchBuffer batch_;  // for the longest prefix so far
  Buffer saved_memory_, scratch_memory_;
};

}  // namespace megatron

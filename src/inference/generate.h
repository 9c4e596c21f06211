// Text from a checkpoint on one rank: the whole model, no cache; each new token runs the model on what stands so far.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "inference/inference_model.h"
#include "inference/sampling.h"

namespace megatron {

class Generator {
 public:
  /// Reads the newest good checkpoint of a run directory, or the checkpoint folder that `path` is; any layout. Computes
  /// where it is told (start_compute of the world). `world` must have one rank.
  /// `precision`: "fp32", "bf16", "fp16", or "checkpoint" for the one that it was trained with.
  Generator(const std::string& path, Communicator& world, Compute compute, const std::string& precision = "fp32");

  const std::string& checkpoint_path() const { return path_; }
  const std::string& tokenizer() const { return tokenizer_; }  ///< name and hash of the one that made the data
  std::uint64_t tokenizer_hash() const { return tokenizer_hash_; }

  /// Continues `prompt` (at least one token) until `end` or max_new_tokens; calls `emit` with each new token. When the
  /// trained context is full, its older half is left out.
  void generate(std::vector<std::int32_t> prompt, std::int32_t end, const SamplingOptions& options,
                const std::function<void(std::int32_t)>& emit);

 private:
  std::string path_, tokenizer_;
  std::uint64_t tokenizer_hash_ = 0;
  std::unique_ptr<InferenceModel> model_;
  std::vector<float> logits_;  // of the last row
};

}  // namespace megatron

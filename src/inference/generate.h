// Text from a checkpoint on one rank: the whole model, no cache; each new token runs the model on what stands so far.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "inference/inference_model.h"

namespace megatron {

struct SamplingOptions {
  std::int64_t max_new_tokens = 100;
  double temperature = 1;  ///< > 0
  std::int64_t top_k = 0;  ///< 0: all; 1: greedy
  double top_p = 0;        ///< 0: all; else the smallest set of tokens with at least this probability, of the top_k's
  std::uint64_t seed = 1234;
};

/// The next token from one row of logits: greedy for top_k 1, else softmax at the temperature, restricted to the top_k
/// likeliest (ties kept), then among these to the nucleus top_p (Holtzman et al. 2020; the token that crosses p is
/// kept), and drawn with `uniform` in [0, 1). Error(numerics) if a logit is not finite.
std::int32_t sample_token(std::span<const float> logits, const SamplingOptions& options, double uniform);

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

// Benchmark of generation: tokens per second of GPT-2 124M on one core, next to what the machine's memory and the
// training's forward pass allow, and the bubble of a pipeline that decodes. Weights and prompts are pseudo-random; text
// is made by the generation that megatron_generate uses. Owns nothing after it returns; must not know files.
#pragma once

#include <string>
#include <vector>

#include "comm/communicator.h"
#include "config/config.h"

namespace megatron {

struct GenerationCase {
  ModelConfig model;
  std::int64_t batch = 16;     ///< prompts that are decoded together, compared with one
  std::int64_t prompt = 32;    ///< tokens of a prompt
  std::int64_t tokens = 17;    ///< new ones per prompt and round: the first comes from reading the prompt
  std::int64_t prefill = 256;  ///< tokens of the prompt whose reading is compared with a training forward
};

/// GPT-2 124M.
GenerationCase generation_case();

/// A decoder's steps at one precision and batch.
struct DecodingSpeed {
  std::string precision;
  std::int64_t batch = 1;
  double seconds = 0;  ///< per step: a token of each prompt, its choice included
  double bytes = 0;    ///< weights and cache that a step reads
  double tokens_per_second() const { return static_cast<double>(batch) / seconds; }
};

/// Medians of the rounds; ratios are medians of the rounds' ratios.
struct GenerationSpeed {
  double read_bytes_per_second = 0;     ///< by one core that only reads memory
  std::vector<DecodingSpeed> decoding;  ///< fp32 with one prompt and with a batch, then bf16
  double share_of_bandwidth = 0;        ///< with one prompt in fp32
  double share_of_bandwidth_bf16 = 0;
  double bf16_over_fp32 = 0;  ///< tokens per second of one prompt
  double batch_over_one = 0;  ///< tokens per second in fp32
  double batch_over_one_bf16 = 0;
  double prefill_tokens_per_second = 0;   ///< fp32, logits of the last token
  double training_tokens_per_second = 0;  ///< forward of a training micro-batch of as many tokens, without dropout
  double prefill_over_training = 0;
};

/// Takes turns: every round measures everything once. On the calling thread's core, a rank by itself.
GenerationSpeed measure_generation(const GenerationCase& benchmark, int rounds, Communicator& world);

/// Groups of prompts on a pipeline. Ranks are threads; a stage sleeps instead of computing, for the same time in every
/// stage, so that the bubble is that of the order of passes and of the messages.
struct DecodingPipeline {
  int stages = 4, groups = 8;
  std::int64_t tokens = 16;  ///< per prompt
  double bubble = 0;         ///< measured: 1 - sleep / (stages · time from first to last pass)
  double by_order = 0;       ///< filling and draining alone
};
DecodingPipeline measure_decoding_pipeline(double seconds, int rounds);

/// A table for people, and a line of JSON for scripts.
std::string describe(const GenerationSpeed& speed, const DecodingPipeline& pipeline);
std::string to_json(const GenerationSpeed& speed, const DecodingPipeline& pipeline);

}  // namespace megatron

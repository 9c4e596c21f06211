// Text from a decoder: samples of prompts, or the best beams, group by group. Every rank of a model replica runs the
// same loop; the sampling rank chooses tokens and tells the others. Data ranks take turns with the prompts.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "inference/decoding/decoder.h"
#include "inference/decoding/sampling.h"

namespace megatron {

/// One text to be made.
struct GenerationJob {
  std::int64_t prompt = 0, sample = 0;  ///< numbers that random numbers depend on
  std::vector<std::int32_t> tokens;     ///< at least one
  /// Input of the encoder, at least one token, while `tokens` start the decoder; none for a model without an encoder.
  std::vector<std::int32_t> encoder_tokens = {};
};

enum class Ending { none, length, end_of_document, stop_text };  ///< none: stopped before its end

struct Generated {
  std::vector<std::int32_t> tokens;  ///< without the token that ended the text
  Ending ending = Ending::none;
  /// The tokens', if asked for. Where max_new_tokens is 0, those of the prompt's tokens from the second on.
  std::vector<double> log_probabilities;
  std::vector<std::vector<TokenLogProbability>> likeliest;  ///< in each of these places, if asked for
  double score = 0;                                         ///< for beams
};

/// The model's logits, before any penalty, that token number `place` of a job was chosen from; where max_new_tokens is
/// 0, those after token `place` of the prompt.
using LogitsAt = std::function<void(std::size_t job, std::int64_t place, std::span<const float> logits)>;

struct GenerationOptions {
  SamplingOptions sampling;
  std::vector<std::int32_t> ends = {0};  ///< tokens that end a text, at least one
  bool log_probabilities = false;        ///< asks for those of the chosen tokens
  std::int64_t likeliest = 0;            ///< and for those of this number of likeliest tokens
  std::int64_t beams = 0;                ///< 0: sampling
  double length_penalty = 1;             ///< for beams
  std::int64_t speculate = 0;  ///< tokens that are guessed from the text so far and checked together; not for beams
  LogitsAt logits;             ///< called on the sampling rank alone, if set; not for beams
  std::function<bool()> stop;  ///< asked between tokens, if set on every rank: any rank's yes ends the replica's jobs
};

/// Whether a job's text ends with this new token, by its words; called on the sampling rank alone.
using StopsAt = std::function<bool(std::size_t job, std::int32_t token)>;
/// Told each new token of a job, on all ranks of its replica. Not for beams.
using NewToken = std::function<void(std::size_t job, std::int32_t token)>;

/// Sizes that a decoder must be made for so that these jobs can be generated: at most `groups` groups, of `samples`
/// jobs each. `context`: ModelConfig::predicted_length(). Error(configuration) if a prompt that is to be scored, or one
/// with its beams, is longer than the context.
DecoderSizes sizes_for(std::span<const GenerationJob> jobs, const GenerationOptions& options, std::int64_t context,
                       std::int64_t samples, std::int64_t groups);

/// Collective over a model replica, whose jobs are every n-th of n data ranks; other jobs' results stay empty. A
/// context that is full is cut to its newer half and read again. Error(numerics) if the model's logits are not finite.
std::vector<Generated> generate(Decoder& decoder, std::span<const GenerationJob> jobs, const GenerationOptions& options,
                                const StopsAt& stops, const NewToken& told);

}  // namespace megatron

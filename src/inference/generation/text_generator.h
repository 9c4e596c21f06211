// TextGenerator: jobs to texts on all ranks of a decoder. What is heard while texts are made, and the finished texts,
// come together on rank 0. Refers to the decoder and its tokenizer; knows neither files nor streams.
#pragma once

#include <cstddef>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "data/tokenizer/tokenizer.h"
#include "inference/decoding/decoder.h"
#include "inference/decoding/generate.h"
#include "inference/generation/logits_file.h"
#include "inference/generation/prompts.h"
#include "inference/generation/text_options.h"
#include "inference/generation/text_result.h"

namespace megatron {

struct TextListeners {
  /// On rank 0: more of the text of a job that its own copy of the model makes. Not for beams.
  std::function<void(std::size_t job, const std::string& piece)> piece;
  /// On rank 0: that one of these jobs has a new token.
  std::function<void()> token;
  /// Asked between tokens, if set on every rank: whether all texts shall end there, by any rank's answer.
  std::function<bool()> stop;
  /// The sampling rank's; gets all logits, by the number of the job.
  LogitsFile* logits = nullptr;
};

class TextGenerator {
 public:
  TextGenerator(Decoder& decoder, const Tokenizer& tokenizer, Communicator& world)
      : decoder_(decoder), tokenizer_(tokenizer), world_(world) {}

  const Decoder& decoder() const { return decoder_; }
  const Tokenizer& tokenizer() const { return tokenizer_; }
  Communicator& world() const { return world_; }

  /// Collective over the world, with the same jobs and options. Returns a result per job, in their order, on rank 0,
  /// and nothing on others. Errors as generate().
  std::vector<TextResult> make(std::span<const GenerationJob> jobs, const TextOptions& options,
                               const SearchOptions& search, const TextListeners& listeners);

 private:
  std::vector<NumberedResult> gather(std::vector<Generated> mine);

  Decoder& decoder_;
  const Tokenizer& tokenizer_;
  Communicator& world_;
};

/// Options of generate() for these texts. An encoder-decoder's text ends where the decoder's context does.
GenerationOptions generation_options(const TextOptions& options, const SearchOptions& search,
                                     const Tokenizer& tokenizer, const ModelConfig& model);

/// A job for each sample of a prompt, whose number is `number`.
void add_jobs(std::vector<GenerationJob>& jobs, std::int64_t number, std::int64_t samples, const Prompt& prompt);

}  // namespace megatron

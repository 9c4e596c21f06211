// DecodedGroup: what one group of a decoder is at work on, as a loop sees it. All ranks of a replica prepare the same
// passes; the sampling rank chooses from logits and says what it chose in a message; all take that in.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "inference/decoding/generate.h"

namespace megatron {

/// The jobs of a replica, and what became of them.
struct JobList {
  Decoder& decoder;
  std::span<const GenerationJob> jobs;
  const GenerationOptions& options;
  const StopsAt& stops;
  const NewToken& told;
  std::vector<Generated> results;
  std::vector<std::size_t> waiting;  ///< numbers of jobs
  std::size_t taken = 0;             ///< how many of these have been taken

  bool empty() const { return taken == waiting.size(); }
  std::size_t take() { return waiting[taken++]; }
};

/// Adds a sample to a pass over the encoder: the text of its job.
inline void add_text(const GenerationJob& job, DecoderPass& pass) {
  pass.stream = Stream::encoder;
  pass.tokens.push_back(job.encoder_tokens);
  pass.offsets.push_back(0);
  pass.wanted.push_back(0);
}

class DecodedGroup {
 public:
  virtual ~DecodedGroup() = default;
  /// Takes jobs that wait if it has room, and says what the next pass is. False if nothing is left to do.
  virtual bool prepare(DecoderPass& pass) = 0;
  /// On the sampling rank: from the logits of the pass to the message.
  virtual void choose(std::span<float> logits) = 0;
  /// Integers of the same number in every pass, which the sampling rank sends to the others.
  virtual std::span<std::int32_t> message() = 0;
  virtual void take() = 0;
};

std::unique_ptr<DecodedGroup> make_sampled_group(JobList& list);
/// `number`: of the group in the decoder.
std::unique_ptr<DecodedGroup> make_beam_group(JobList& list, std::int64_t number);

}  // namespace megatron

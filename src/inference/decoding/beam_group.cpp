// The best beams of one prompt after the other: one per group at a time, its beams in the group's samples.
#include <algorithm>
#include <bit>
#include <cmath>
#include <numeric>
#include <optional>

#include "inference/decoding/beam_search.h"
#include "inference/decoding/decoded_group.h"

namespace megatron {

namespace {

using Tokens = std::vector<std::int32_t>;

class BeamGroup final : public DecodedGroup {
 public:
  BeamGroup(JobList& list, std::int64_t number)
      : list_(list),
        number_(number),
        message_(
            static_cast<std::size_t>(kHead + std::max(2 * list.options.beams, list.options.sampling.max_new_tokens))) {}

  bool prepare(DecoderPass& pass) override;
  void choose(std::span<float> logits) override;
  std::span<std::int32_t> message() override { return message_; }
  void take() override;

 private:
  // The message: its kind, then how many pairs (beam, new token) of open beams follow; or tokens of the best text, with
  // its ending and score before them.
  enum Kind : std::int32_t { reading, beams, text, failed };
  static constexpr std::int64_t kHead = 4;

  std::int32_t& said(std::int64_t i) { return message_[static_cast<std::size_t>(i)]; }
  std::int32_t* body() { return message_.data() + kHead; }
  bool encode(DecoderPass& pass);
  void read(DecoderPass& pass);
  void reorder();
  void say_text();

  JobList& list_;
  std::int64_t number_;
  bool running_ = false;
  std::size_t job_ = 0;
  std::int64_t cached_ = 0, read_ = 0;  // tokens of each beam; of the prompt in the pass under way
  std::int64_t made_ = 0;               // new tokens of each beam
  std::int64_t encoded_ = 0;            // beams whose encoder has read the job's text
  std::optional<BeamSearch> search_;    // on the sampling rank
  Tokens from_, next_;                  // for each open beam: the beam that it comes from, and its new token
  std::vector<std::int32_t> message_;
};

bool BeamGroup::prepare(DecoderPass& pass) {
  const GenerationOptions& options = list_.options;
  while (!running_ && !list_.empty()) {
    job_ = list_.take();
    running_ = options.sampling.max_new_tokens > 0;
    if (!running_) list_.results[job_].ending = Ending::length;
    cached_ = made_ = encoded_ = 0;
    if (list_.decoder.samples_here()) search_.emplace(BeamOptions{options.beams, options.length_penalty, options.ends});
  }
  if (!running_) return false;
  if (encode(pass)) return true;
  if (made_ == 0) {
    read(pass);
    return true;
  }
  reorder();
  for (const std::int32_t token : next_) {
    pass.tokens.push_back({token});
    pass.offsets.push_back(static_cast<std::int32_t>(cached_));
    pass.wanted.push_back(1);
  }
  read_ = 1;
  return true;
}

/// The same text for each beam, because reorder() does not move it. False where nothing is left to read.
bool BeamGroup::encode(DecoderPass& pass) {
  const GenerationJob& job = list_.jobs[job_];
  const DecoderSizes& sizes = list_.decoder.sizes();
  if (job.encoder_tokens.empty() || encoded_ == sizes.samples) return false;
  pass.first_sample = encoded_;
  const std::int64_t count = std::min(sizes.encoder_samples, sizes.samples - encoded_);
  for (std::int64_t i = 0; i < count; ++i) add_text(job, pass);
  encoded_ += count;
  read_ = 0;
  return true;
}

/// The prompt, in the first sample: the beams are copies of it.
void BeamGroup::read(DecoderPass& pass) {
  const Tokens& prompt = list_.jobs[job_].tokens;
  const auto size = static_cast<std::int64_t>(prompt.size());
  read_ = std::min(size - cached_, list_.decoder.sizes().first_rows);
  const auto from = prompt.begin() + cached_;
  pass.tokens.emplace_back(from, from + read_);
  pass.offsets.push_back(static_cast<std::int32_t>(cached_));
  pass.wanted.push_back(cached_ + read_ == size ? 1 : 0);
}

void BeamGroup::reorder() {
  Tokens from(static_cast<std::size_t>(list_.decoder.sizes().samples));
  std::iota(from.begin(), from.end(), 0);
  if (std::equal(from_.begin(), from_.end(), from.begin())) return;
  std::copy(from_.begin(), from_.end(), from.begin());
  list_.decoder.reorder(number_, from);
}

void BeamGroup::choose(std::span<float> logits) {
  said(0) = reading;
  if (logits.empty()) return;
  if (!std::all_of(logits.begin(), logits.end(), [](float logit) { return std::isfinite(logit); })) {
    said(0) = failed;
    return;
  }
  const auto& choices = search_->advance(logits, list_.decoder.config().model.vocab_size);
  if (search_->done() || made_ + 1 == list_.options.sampling.max_new_tokens) return say_text();
  said(0) = beams;
  said(1) = static_cast<std::int32_t>(choices.size());
  std::int32_t* to = body();
  for (const BeamSearch::Choice& choice : choices) {
    *to++ = static_cast<std::int32_t>(choice.beam);
    *to++ = choice.token;
  }
}

void BeamGroup::say_text() {
  const std::vector<Hypothesis> found = search_->finish();
  internal_check(!found.empty(), "beam search without a text");
  const Hypothesis& best = found.front();
  said(0) = text;
  said(1) = static_cast<std::int32_t>(best.tokens.size());
  said(2) = static_cast<std::int32_t>(best.finished ? Ending::end_of_document : Ending::length);
  said(3) = std::bit_cast<std::int32_t>(static_cast<float>(best.score));
  std::copy(best.tokens.begin(), best.tokens.end(), body());
}

void BeamGroup::take() {
  verify(said(0) != failed, ErrorKind::numerics, "{}", kNotFinite);
  cached_ += read_;
  if (said(0) == beams) {
    ++made_;
    from_.clear();
    next_.clear();
    for (std::int32_t i = 0; i < said(1); ++i) {
      from_.push_back(body()[2 * i]);
      next_.push_back(body()[2 * i + 1]);
    }
  } else if (said(0) == text) {
    Generated& result = list_.results[job_];
    result.tokens.assign(body(), body() + said(1));
    result.ending = static_cast<Ending>(said(2));
    result.score = double{std::bit_cast<float>(said(3))};
    running_ = false;
  }
}

}  // namespace

std::unique_ptr<DecodedGroup> make_beam_group(JobList& list, std::int64_t number) {
  return std::make_unique<BeamGroup>(list, number);
}

}  // namespace megatron

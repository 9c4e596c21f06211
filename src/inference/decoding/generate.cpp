#include "inference/decoding/generate.h"

#include <algorithm>

#include "distributed/comm/meanings.h"
#include "inference/decoding/decoded_group.h"

namespace megatron {

namespace {

/// Tokens of all prompts of a group that are read in one pass: enough for products at full speed.
constexpr std::int64_t kTokensTogether = 1024;
/// The same where every one of them has a row of logits.
constexpr std::int64_t kScoredTogether = 128;

/// Asks all ranks of a replica whether to stop, without waiting for the answer to the last question's end.
class StopRequest {
 public:
  StopRequest(Communicator& model, const std::function<bool()>& stop) : model_(model), stop_(stop) {}
  ~StopRequest() {
    if (asked_.active()) asked_.wait();
  }
  bool ask() {
    if (!stop_) return false;
    if (asked_.active()) asked_.wait();
    const bool agreed = answer_ != 0;
    answer_ = stop_() ? 1 : 0;
    if (!agreed) asked_ = model_.start_all_reduce({&answer_, {1}, DType::f64}, kDecision);
    return agreed;
  }

 private:
  Communicator& model_;
  const std::function<bool()>& stop_;
  double answer_ = 0;
  Pending asked_;
};

/// Group by group: while one waits for what was chosen, the others' passes are under way on other stages.
void run_groups(JobList& list, std::span<const std::unique_ptr<DecodedGroup>> groups) {
  Decoder& decoder = list.decoder;
  Communicator& model = decoder.grid().model().host();
  std::vector<Pending> told(groups.size());
  std::vector<float> logits;
  StopRequest stop(model, list.options.stop);
  const auto take = [&](std::size_t i) {
    if (!told[i].active()) return;
    told[i].wait();
    groups[i]->take();
  };
  // A group of one rank has nothing to wait for, and a Pending that is not active.
  const bool alone = model.size() == 1;
  for (bool active = true; active;) {
    active = false;
    if (stop.ask()) break;
    for (std::size_t i = 0; i < groups.size(); ++i) {
      take(i);
      DecoderPass pass;
      if (!groups[i]->prepare(pass)) continue;
      active = true;
      decoder.run(static_cast<std::int64_t>(i), pass, logits);
      if (decoder.samples_here()) groups[i]->choose(logits);
      const std::span<std::int32_t> message = groups[i]->message();
      if (alone) {
        groups[i]->take();
      } else {
        told[i] = model.start_broadcast({message.data(), {static_cast<std::int64_t>(message.size())}, DType::i32},
                                        decoder.sampling_rank(), kChosenTokens);
      }
    }
  }
  for (std::size_t i = 0; i < groups.size(); ++i) take(i);
}

}  // namespace

DecoderSizes sizes_for(std::span<const GenerationJob> jobs, const GenerationOptions& options, std::int64_t context,
                       std::int64_t samples, std::int64_t groups) {
  std::int64_t longest = 1, encoded = 0;
  for (const GenerationJob& job : jobs) {
    longest = std::max(longest, static_cast<std::int64_t>(job.tokens.size()));
    encoded = std::max(encoded, static_cast<std::int64_t>(job.encoder_tokens.size()));
  }
  const bool scores = options.sampling.max_new_tokens == 0;
  // The last new token is never read.
  const std::int64_t all = longest + std::max<std::int64_t>(options.sampling.max_new_tokens - 1, 0);
  verify(all <= context || (options.beams == 0 && !scores), ErrorKind::configuration,
         "the longest prompt has {} tokens{}: more than the model's context of {}", longest,
         scores ? "" : fmt::format(", with {} new ones of each beam {}", options.sampling.max_new_tokens, all),
         context);
  DecoderSizes sizes;
  sizes.samples = options.beams > 0 ? options.beams : samples;
  sizes.groups = groups;
  sizes.reorders = options.beams > 0;
  sizes.capacity = std::min(all, context);
  const std::int64_t together = (scores ? kScoredTogether : kTokensTogether) / sizes.samples;
  sizes.first_rows = std::min(std::max(together, 1 + options.speculate), sizes.capacity);
  if (encoded > 0) {  // an encoder-decoder's context is never cut and read again
    sizes.first_rows = std::min(sizes.first_rows, std::max(longest, 1 + options.speculate));
    sizes.encoder_rows = encoded;
    sizes.encoder_samples = std::clamp<std::int64_t>(kTokensTogether / encoded, 1, sizes.samples);
  }
  sizes.logits_rows = sizes.samples * (scores ? sizes.first_rows : 1 + options.speculate);
  return sizes;
}

std::vector<Generated> generate(Decoder& decoder, std::span<const GenerationJob> jobs, const GenerationOptions& options,
                                const StopsAt& stops, const NewToken& told) {
  JobList list{decoder, jobs, options, stops, told, std::vector<Generated>(jobs.size()), {}};
  const auto step = static_cast<std::size_t>(decoder.grid().shape().data);
  for (auto job = static_cast<std::size_t>(decoder.grid().at().data); job < jobs.size(); job += step) {
    internal_check(!jobs[job].tokens.empty(), "generation from an empty prompt");
    list.waiting.push_back(job);
  }
  std::vector<std::unique_ptr<DecodedGroup>> groups;
  for (std::int64_t i = 0; i < decoder.sizes().groups; ++i) {
    groups.push_back(options.beams > 0 ? make_beam_group(list, i) : make_sampled_group(list));
  }
  run_groups(list, groups);
  return std::move(list.results);
}

}  // namespace megatron

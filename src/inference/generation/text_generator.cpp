#include "inference/generation/text_generator.h"

#include <algorithm>
#include <iterator>
#include <map>

#include "distributed/comm/gather.h"
#include "inference/generation/text_pieces.h"

namespace megatron {

namespace {

/// The tokens whose text a job's text continues.
std::span<const std::int32_t> continued(const GenerationJob& job) {
  return job.encoder_tokens.empty() ? std::span<const std::int32_t>(job.tokens) : std::span<const std::int32_t>();
}

/// The texts of the jobs so far, made when they are asked for.
class RunningTexts {
 public:
  RunningTexts(const Tokenizer& tokenizer, const std::vector<std::string>& stops, std::span<const GenerationJob> jobs)
      : tokenizer_(tokenizer), stops_(stops), jobs_(jobs) {}
  TextPieces& of(std::size_t job) {
    return texts_.try_emplace(job, tokenizer_, stops_, continued(jobs_[job])).first->second;
  }
  /// The rest of all texts, in the order of the jobs.
  void finish(const std::function<void(std::size_t job, const std::string& piece)>& piece) {
    for (auto& [job, text] : texts_) {
      if (const std::string rest = text.rest(); !rest.empty()) piece(job, rest);
    }
  }

 private:
  const Tokenizer& tokenizer_;
  const std::vector<std::string>& stops_;
  std::span<const GenerationJob> jobs_;
  std::map<std::size_t, TextPieces> texts_;
};

}  // namespace

GenerationOptions generation_options(const TextOptions& options, const SearchOptions& search,
                                     const Tokenizer& tokenizer, const ModelConfig& model) {
  GenerationOptions result;
  result.sampling = options.sampling;
  result.ends = options.ends.empty() ? std::vector{tokenizer.eod_id()} : options.ends;
  if (model.has_decoder()) {
    std::int64_t& most = result.sampling.max_new_tokens;
    most = std::min(most, model.decoder_sequence_length);
  }
  result.log_probabilities = search.beams == 0;
  result.likeliest = options.likeliest;
  result.beams = search.beams;
  result.length_penalty = search.length_penalty;
  result.speculate = search.speculate;
  return result;
}

void add_jobs(std::vector<GenerationJob>& jobs, std::int64_t number, std::int64_t samples, const Prompt& prompt) {
  for (std::int64_t sample = 0; sample < samples; ++sample) {
    jobs.push_back({number, sample, prompt.tokens, prompt.encoder_tokens});
  }
}

std::vector<TextResult> TextGenerator::make(std::span<const GenerationJob> jobs, const TextOptions& options,
                                            const SearchOptions& search, const TextListeners& listeners) {
  GenerationOptions generation = generation_options(options, search, tokenizer_, decoder_.config().model);
  generation.stop = listeners.stop;
  if (listeners.logits != nullptr) {
    generation.logits = [&](std::size_t job, std::int64_t place, std::span<const float> logits) {
      listeners.logits->add(static_cast<std::int64_t>(job), place, logits);
    };
  }
  RunningTexts stopping(tokenizer_, options.stops, jobs), shown(tokenizer_, options.stops, jobs);
  StopsAt stops;
  if (!options.stops.empty()) {
    stops = [&](std::size_t job, std::int32_t token) {
      TextPieces& text = stopping.of(job);
      text.add(token);
      return text.stopped();
    };
  }
  NewToken told;
  if (world_.rank() == 0 && (listeners.piece || listeners.token)) {
    told = [&](std::size_t job, std::int32_t token) {
      if (listeners.token) listeners.token();
      if (!listeners.piece) return;
      if (const std::string piece = shown.of(job).add(token); !piece.empty()) listeners.piece(job, piece);
    };
  }
  std::vector<NumberedResult> all = gather(generate(decoder_, jobs, generation, stops, told));
  if (listeners.piece && world_.rank() == 0) shown.finish(listeners.piece);
  std::vector<TextResult> results(all.empty() ? 0 : jobs.size());
  for (auto& [job, made] : all) {
    results[job] = {.prompt = jobs[job].prompt,
                    .sample = jobs[job].sample,
                    .text = text_of(tokenizer_, options.stops, continued(jobs[job]), made.tokens),
                    .made = std::move(made)};
  }
  return results;
}

std::vector<NumberedResult> TextGenerator::gather(std::vector<Generated> mine) {
  const ProcessGrid& grid = decoder_.grid();
  std::vector<NumberedResult> results;
  for (auto job = static_cast<std::size_t>(grid.at().data); job < mine.size();
       job += static_cast<std::size_t>(grid.shape().data)) {
    results.push_back({job, std::move(mine[job])});
  }
  if (grid.shape().data > 1) {
    const bool sends = grid.at().tensor == 0 && grid.at().pipeline == 0;
    if (!sends) results.clear();
    std::vector<std::vector<NumberedResult>> by_rank = megatron::gather(world_, results);
    results.clear();
    for (std::vector<NumberedResult>& part : by_rank) std::move(part.begin(), part.end(), std::back_inserter(results));
  }
  if (world_.rank() != 0) results.clear();
  return results;
}

}  // namespace megatron

// Samples of prompts, one per row of a group. A row whose text has ended takes the next job at once: its prompt is read
// in a pass of its own, while the others wait.
#include <algorithm>
#include <bit>
#include <optional>

#include "inference/decoding/decoded_group.h"
#include "inference/decoding/look_up.h"

namespace megatron {

namespace {

/// The tokens that are left out at the beginning of a context of `size` tokens: a full one is cut to its newer half and
/// grows again, as the last positions are the least trained ones.
std::int64_t left_out(std::int64_t size, std::int64_t longest) {
  const std::int64_t half = (longest + 1) / 2;
  return size <= longest ? 0 : (size - longest + half - 1) / half * half;
}

using Tokens = std::vector<std::int32_t>;

/// One sample of a group: the text of a job so far.
struct Row {
  std::size_t job = 0;
  bool running = false;
  Tokens context = {};
  bool encoded = false;     ///< for an encoder-decoder: its encoder has read the job's text
  std::int64_t start = 0;   ///< tokens of the context that are left out
  std::int64_t cached = 0;  ///< tokens after these that the cache has

  // In the pass under way.
  std::int64_t read = 0;  ///< tokens of the context that the pass reads
  std::int64_t wanted = 0;
  Tokens guesses = {};  ///< that follow these

  std::int64_t size() const { return static_cast<std::int64_t>(context.size()); }
  std::int64_t unread() const { return size() - start - cached; }
};

/// Numbers that the sampling rank tells the others, for each sample: how many places follow and how the text ended; for
/// each of its places: token, log-probability, and `likeliest` pairs of the likeliest tokens. In front of all: whether
/// the logits are finite.
class Verdicts {
 public:
  Verdicts(std::int64_t samples, std::int64_t places, std::int64_t likeliest)
      : places_(places), likeliest_(likeliest), numbers_(static_cast<std::size_t>(1 + samples * width())) {}

  std::span<std::int32_t> numbers() { return numbers_; }
  std::int32_t& failed() { return numbers_[0]; }
  std::int32_t& count(std::int64_t sample) { return at(sample, 0); }
  std::int32_t& ending(std::int64_t sample) { return at(sample, 1); }
  std::int32_t& token(std::int64_t sample, std::int64_t place) { return at(sample, 2 + place * place_width()); }
  void set_log_probability(std::int64_t sample, std::int64_t place, double value) {
    at(sample, 3 + place * place_width()) = bits(value);
  }
  double log_probability(std::int64_t sample, std::int64_t place) {
    return value(at(sample, 3 + place * place_width()));
  }
  void set_likeliest(std::int64_t sample, std::int64_t place, std::span<const TokenLogProbability> likeliest) {
    std::int64_t to = 4 + place * place_width();
    for (const TokenLogProbability& likely : likeliest) {
      at(sample, to++) = likely.token;
      at(sample, to++) = bits(likely.value);
    }
  }
  std::vector<TokenLogProbability> likeliest(std::int64_t sample, std::int64_t place, std::int64_t count) {
    std::vector<TokenLogProbability> result;
    for (std::int64_t i = 0, from = 4 + place * place_width(); i < count; ++i, from += 2) {
      result.push_back({at(sample, from), value(at(sample, from + 1))});
    }
    return result;
  }

 private:
  static std::int32_t bits(double value) { return std::bit_cast<std::int32_t>(static_cast<float>(value)); }
  static double value(std::int32_t bits) { return double{std::bit_cast<float>(bits)}; }
  std::int64_t place_width() const { return 2 + 2 * likeliest_; }
  std::int64_t width() const { return 2 + places_ * place_width(); }
  std::int32_t& at(std::int64_t sample, std::int64_t i) {
    return numbers_[static_cast<std::size_t>(1 + sample * width() + i)];
  }

  std::int64_t places_, likeliest_;
  std::vector<std::int32_t> numbers_;
};

class SampledGroup final : public DecodedGroup {
 public:
  explicit SampledGroup(JobList& list)
      : list_(list),
        scores_(list.options.sampling.max_new_tokens == 0),
        rows_(static_cast<std::size_t>(list.decoder.sizes().samples)),
        verdicts_(list.decoder.sizes().samples, scores_ ? list.decoder.sizes().first_rows : 1 + list.options.speculate,
                  std::min(list.options.likeliest, list.decoder.config().model.vocab_size)) {}

  bool prepare(DecoderPass& pass) override;
  void choose(std::span<float> logits) override;
  std::span<std::int32_t> message() override { return verdicts_.numbers(); }
  void take() override;

 private:
  const GenerationOptions& options() const { return list_.options; }
  std::int64_t vocab() const { return list_.decoder.config().model.vocab_size; }
  bool nothing_asked() const {
    return scores_ && !options().log_probabilities && options().likeliest == 0 && !options().logits;
  }
  void fill();
  bool encode(DecoderPass& pass);
  void add(Row& row, bool reading, DecoderPass& pass) const;
  void choose_row(std::int64_t sample, std::span<float> logits);
  void score_row(std::int64_t sample, std::span<float> logits);
  void report(std::int64_t sample, std::int64_t place, std::int64_t number, std::span<const float> logits);
  Ending ending_with(std::size_t job, std::int32_t token, std::int64_t position) const;
  void take_row(std::int64_t sample);
  void take_place(std::int64_t sample, std::int64_t place, Generated& result);

  JobList& list_;
  bool scores_;  // no new tokens
  std::vector<Row> rows_;
  std::int64_t first_ = 0, last_ = 0;  // rows of the pass under way
  Verdicts verdicts_;
};

void SampledGroup::fill() {
  for (Row& row : rows_) {
    while (!row.running && !list_.empty()) {
      const std::size_t job = list_.take();
      if (nothing_asked()) {
        list_.results[job].ending = Ending::length;
      } else {
        const GenerationJob& taken = list_.jobs[job];
        row = {.job = job, .running = true, .context = taken.tokens, .encoded = taken.encoder_tokens.empty()};
      }
    }
  }
}

/// The texts of neighbouring rows that no encoder has read; false where there are none.
bool SampledGroup::encode(DecoderPass& pass) {
  const auto waits = [](const Row& row) { return row.running && !row.encoded; };
  const auto first = std::find_if(rows_.begin(), rows_.end(), waits);
  first_ = last_ = first - rows_.begin();
  pass.first_sample = first_;
  for (auto row = first; row != rows_.end() && waits(*row); ++row) {
    if (last_ - first_ == list_.decoder.sizes().encoder_samples) break;
    add_text(list_.jobs[row->job], pass);
    row->encoded = true;
    row->read = row->wanted = 0;
    ++last_;
  }
  return last_ > first_;
}

bool SampledGroup::prepare(DecoderPass& pass) {
  fill();
  if (encode(pass)) return true;
  const std::int64_t longest = list_.decoder.config().model.predicted_length();
  bool reading = false;
  for (Row& row : rows_) {
    if (!row.running) continue;
    const std::int64_t start = left_out(row.size(), longest);
    if (start != row.start) {
      row.start = start;
      row.cached = 0;
    }
    reading = reading || row.unread() > 1;
  }
  const auto takes_part = [&](const Row& row) { return row.running && (!reading || row.unread() > 1); };
  const auto first = std::find_if(rows_.begin(), rows_.end(), takes_part);
  if (first == rows_.end()) return false;
  const auto last = std::find_if(rows_.rbegin(), rows_.rend(), takes_part).base();
  first_ = first - rows_.begin();
  last_ = last - rows_.begin();
  pass.first_sample = first_;
  for (auto row = first; row != last; ++row) add(*row, reading, pass);
  return true;
}

void SampledGroup::add(Row& row, bool reading, DecoderPass& pass) const {
  const DecoderSizes& sizes = list_.decoder.sizes();
  row.read = row.wanted = 0;
  row.guesses.clear();
  if (!row.running) {  // a place between others
    pass.tokens.push_back({0});
    pass.offsets.push_back(0);
    pass.wanted.push_back(0);
    return;
  }
  row.read = std::min(row.unread(), sizes.first_rows);
  const auto from = row.context.begin() + row.start + row.cached;
  Tokens tokens(from, from + row.read);
  if (scores_) {
    row.wanted = row.read;
  } else if (row.read == row.unread()) {
    const auto made = static_cast<std::int64_t>(list_.results[row.job].tokens.size());
    if (!reading) {
      row.guesses = look_up(row.context, std::min({options().speculate, sizes.first_rows - row.read,
                                                   sizes.capacity - row.cached - row.read,
                                                   options().sampling.max_new_tokens - made - 1}));
    }
    tokens.insert(tokens.end(), row.guesses.begin(), row.guesses.end());
    row.wanted = 1 + static_cast<std::int64_t>(row.guesses.size());
  }
  pass.tokens.push_back(std::move(tokens));
  pass.offsets.push_back(static_cast<std::int32_t>(row.cached));
  pass.wanted.push_back(row.wanted);
}

void SampledGroup::choose(std::span<float> logits) {
  verdicts_.failed() = all_finite(logits) ? 0 : 1;
  if (verdicts_.failed() != 0) return;
  for (std::int64_t sample = first_; sample < last_; ++sample) {
    const auto count = static_cast<std::size_t>(rows_[static_cast<std::size_t>(sample)].wanted * vocab());
    if (count == 0) continue;
    if (scores_) {
      score_row(sample, logits.first(count));
    } else {
      choose_row(sample, logits.first(count));
    }
    logits = logits.subspan(count);
  }
}

/// Reports what was asked for about the model's own logits, besides a token.
void SampledGroup::report(std::int64_t sample, std::int64_t place, std::int64_t number, std::span<const float> logits) {
  if (options().logits) options().logits(rows_[static_cast<std::size_t>(sample)].job, number, logits);
  if (options().likeliest > 0) {
    verdicts_.set_likeliest(sample, place, likeliest_tokens(logits, options().likeliest));
  }
}

void SampledGroup::score_row(std::int64_t sample, std::span<float> logits) {
  const Row& row = rows_[static_cast<std::size_t>(sample)];
  const auto width = static_cast<std::size_t>(vocab());
  for (std::int64_t place = 0; place < row.wanted; ++place) {
    const std::span<const float> own = logits.subspan(static_cast<std::size_t>(place) * width, width);
    const std::int64_t next = row.cached + place + 1;
    report(sample, place, next - 1, own);
    if (next == row.size() || !options().log_probabilities) continue;
    const auto token = static_cast<std::size_t>(row.context[static_cast<std::size_t>(next)]);
    verdicts_.set_log_probability(sample, place, own[token] - log_sum_exp(own));
  }
}

void SampledGroup::choose_row(std::int64_t sample, std::span<float> logits) {
  const Row& row = rows_[static_cast<std::size_t>(sample)];
  const GenerationJob& job = list_.jobs[row.job];
  const SamplingOptions& sampling = options().sampling;
  const auto width = static_cast<std::size_t>(vocab());
  const auto made = static_cast<std::int64_t>(list_.results[row.job].tokens.size());
  Tokens context = sampling.repetition_penalty == 1 ? Tokens() : row.context;
  for (std::int64_t place = 0; place < row.wanted; ++place) {
    const std::span<float> own = logits.subspan(static_cast<std::size_t>(place) * width, width);
    report(sample, place, made + place, own);
    std::vector<float> penalized;
    std::span<float> from = own;
    if (sampling.repetition_penalty != 1) {
      penalized.assign(own.begin(), own.end());
      from = penalized;
      penalize_repetition(from, context, sampling.repetition_penalty);
    }
    const std::int32_t token = sample_token(from, options_at(sampling, made + place),
                                            sampling_uniform(sampling.seed, job.prompt, job.sample, made + place));
    const Ending ending = ending_with(row.job, token, made + place);
    verdicts_.token(sample, place) = token;
    verdicts_.count(sample) = static_cast<std::int32_t>(place + 1);
    verdicts_.ending(sample) = static_cast<std::int32_t>(ending);
    if (options().log_probabilities) {
      verdicts_.set_log_probability(sample, place, own[static_cast<std::size_t>(token)] - log_sum_exp(own));
    }
    // The places that follow were computed after the guess.
    if (ending != Ending::none || place + 1 == row.wanted) return;
    if (token != row.guesses[static_cast<std::size_t>(place)]) return;
    context.push_back(token);
  }
}

Ending SampledGroup::ending_with(std::size_t job, std::int32_t token, std::int64_t position) const {
  const std::vector<std::int32_t>& ends = options().ends;
  if (std::find(ends.begin(), ends.end(), token) != ends.end()) return Ending::end_of_document;
  if (list_.stops && list_.stops(job, token)) return Ending::stop_text;
  return position + 1 == options().sampling.max_new_tokens ? Ending::length : Ending::none;
}

void SampledGroup::take() {
  verify(verdicts_.failed() == 0, ErrorKind::numerics, "{}", kNotFinite);
  for (std::int64_t sample = first_; sample < last_; ++sample) {
    if (rows_[static_cast<std::size_t>(sample)].running) take_row(sample);
  }
}

void SampledGroup::take_row(std::int64_t sample) {
  Row& row = rows_[static_cast<std::size_t>(sample)];
  Generated& result = list_.results[row.job];
  row.cached += row.read;
  if (scores_) {
    const bool whole = row.cached == row.size();
    for (std::int64_t place = 0; place < row.wanted - (whole ? 1 : 0); ++place) take_place(sample, place, result);
    if (whole) result.ending = Ending::length;
    row.running = !whole;
    return;
  }
  if (row.wanted == 0) return;
  const std::int64_t count = verdicts_.count(sample);
  row.cached += count - 1;  // the guesses that were right
  const auto ending = static_cast<Ending>(verdicts_.ending(sample));
  for (std::int64_t place = 0; place < count; ++place) {
    const std::int32_t token = verdicts_.token(sample, place);
    if (place + 1 == count && ending == Ending::end_of_document) break;
    row.context.push_back(token);
    result.tokens.push_back(token);
    take_place(sample, place, result);
    if (list_.told) list_.told(row.job, token);
  }
  result.ending = ending;
  row.running = ending == Ending::none;
}

void SampledGroup::take_place(std::int64_t sample, std::int64_t place, Generated& result) {
  if (options().log_probabilities) result.log_probabilities.push_back(verdicts_.log_probability(sample, place));
  if (options().likeliest > 0) {
    result.likeliest.push_back(verdicts_.likeliest(sample, place, std::min(options().likeliest, vocab())));
  }
}

}  // namespace

std::unique_ptr<DecodedGroup> make_sampled_group(JobList& list) {
  return std::make_unique<SampledGroup>(list);
}

}  // namespace megatron

#include "inference/decoding/beam_search.h"

#include <algorithm>
#include <cmath>

#include "base/core/error.h"
#include "inference/decoding/sampling.h"

namespace megatron {

namespace {

struct Continuation {
  double sum;
  std::int64_t beam;
  std::int32_t token;
};

bool better(const Continuation& a, const Continuation& b) {
  if (a.sum != b.sum) return a.sum > b.sum;
  return a.beam != b.beam ? a.beam < b.beam : a.token < b.token;
}

}  // namespace

double BeamSearch::score(double sum, std::int64_t length) const {
  return sum / std::pow(static_cast<double>(length), options_.length_penalty);
}

void BeamSearch::add(const std::vector<std::int32_t>& tokens, double sum, std::int64_t length, bool finished) {
  const double value = score(sum, length);
  const auto at =
      std::find_if(texts_.begin(), texts_.end(), [&](const Hypothesis& text) { return text.score < value; });
  texts_.insert(at, {tokens, value, finished});
  if (static_cast<std::int64_t>(texts_.size()) > options_.beams) texts_.pop_back();
}

const std::vector<BeamSearch::Choice>& BeamSearch::advance(std::span<const float> logits, std::int64_t vocab) {
  const auto rows = static_cast<std::int64_t>(open_.size());
  internal_check(!done_ && static_cast<std::int64_t>(logits.size()) == rows * vocab,
                 "beam search: a row of logits for each open beam", logits.size(), rows, vocab);
  verify(std::all_of(logits.begin(), logits.end(), [](float logit) { return std::isfinite(logit); }),
         ErrorKind::numerics, "{}", kNotFinite);
  // The best over all rows are among as many of each: enough that `beams` of them do not end.
  const auto most = static_cast<std::int64_t>(1 + options_.ends.size()) * options_.beams;
  std::vector<Continuation> best;
  for (std::int64_t beam = 0; beam < rows; ++beam) {
    const double sum = open_[static_cast<std::size_t>(beam)].sum;
    const auto row = logits.subspan(static_cast<std::size_t>(beam * vocab), static_cast<std::size_t>(vocab));
    for (const TokenLogProbability& next : likeliest_tokens(row, most)) {
      best.push_back({sum + next.value, beam, next.token});
    }
  }
  std::sort(best.begin(), best.end(), better);
  if (static_cast<std::int64_t>(best.size()) > most) best.resize(static_cast<std::size_t>(most));

  ++length_;
  std::vector<Beam> next;
  choices_.clear();
  for (std::size_t rank = 0; rank < best.size(); ++rank) {
    if (static_cast<std::int64_t>(next.size()) == options_.beams) break;
    const Continuation& continuation = best[rank];
    const Beam& from = open_[static_cast<std::size_t>(continuation.beam)];
    if (std::find(options_.ends.begin(), options_.ends.end(), continuation.token) != options_.ends.end()) {
      if (static_cast<std::int64_t>(rank) < options_.beams) {
        add(from.tokens, continuation.sum, length_, /*finished=*/true);
      }
      continue;
    }
    next.push_back(from);
    next.back().tokens.push_back(continuation.token);
    next.back().sum = continuation.sum;
    choices_.push_back({continuation.beam, continuation.token});
  }
  open_ = std::move(next);
  done_ = open_.empty() || (static_cast<std::int64_t>(texts_.size()) == options_.beams &&
                            texts_.back().score >= score(best.front().sum, length_));
  return choices_;
}

std::vector<Hypothesis> BeamSearch::finish() {
  if (!done_ && length_ > 0) {
    for (const Beam& beam : open_) add(beam.tokens, beam.sum, length_, /*finished=*/false);
  }
  done_ = true;
  return texts_;
}

}  // namespace megatron

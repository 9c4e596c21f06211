#include "inference/decoding/sampling.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <numeric>
#include <unordered_set>

#include "base/core/error.h"
#include "base/core/philox.h"

namespace megatron {

namespace {

/// The tokens from the likeliest on, with their probabilities at a temperature. Sorted only as far as it is read: most
/// draws end within a few tokens of a vocabulary of tens of thousands.
class Candidates {
 public:
  struct Candidate {
    std::int32_t token;
    double probability;
    bool operator<(const Candidate& other) const {
      return probability != other.probability ? probability > other.probability : token < other.token;
    }
  };

  Candidates(std::span<const float> logits, double temperature) {
    const float highest = *std::max_element(logits.begin(), logits.end());
    all_.reserve(logits.size());
    double sum = 0;
    for (std::size_t i = 0; i < logits.size(); ++i) {
      const double probability = std::exp((double{logits[i]} - highest) / temperature);
      all_.push_back({static_cast<std::int32_t>(i), probability});
      sum += probability;
    }
    for (Candidate& candidate : all_) candidate.probability /= sum;
  }

  std::size_t size() const { return all_.size(); }
  const Candidate& operator[](std::size_t i) {
    while (i >= sorted_) sort_more();
    return all_[i];
  }
  double sum(std::size_t count) {
    double total = 0;
    if (count == size()) {
      for (const Candidate& candidate : all_) total += candidate.probability;
    } else {
      for (std::size_t i = 0; i < count; ++i) total += (*this)[i].probability;
    }
    return total;
  }

 private:
  void sort_more() {
    const std::size_t end = std::min(size(), std::max<std::size_t>(64, sorted_ * 4));
    const auto at = [&](std::size_t i) { return all_.begin() + static_cast<std::ptrdiff_t>(i); };
    if (end < size()) std::nth_element(at(sorted_), at(end), all_.end());
    std::sort(at(sorted_), at(end));
    sorted_ = end;
  }

  std::vector<Candidate> all_;
  std::size_t sorted_ = 0;  // as many of the first are in their places
};

/// Takes finite numbers, at least one.
float largest(std::span<const float> logits) {
  float highest = logits[0];
#pragma omp simd reduction(max : highest)
  for (std::size_t i = 0; i < logits.size(); ++i) highest = std::max(highest, logits[i]);
  return highest;
}

std::size_t kept(Candidates& candidates, const SamplingOptions& options) {
  std::size_t count = candidates.size();
  if (options.top_k > 0 && static_cast<std::size_t>(options.top_k) < count) {
    const double threshold = candidates[static_cast<std::size_t>(options.top_k) - 1].probability;
    for (count = static_cast<std::size_t>(options.top_k); count < candidates.size(); ++count) {
      if (candidates[count].probability < threshold) break;
    }
  }
  if (options.top_p > 0) {
    const double total = candidates.sum(count);
    double sum = 0;
    for (std::size_t i = 0; i < count; ++i) {
      sum += candidates[i].probability;
      if (sum > options.top_p * total) return i + 1;
    }
  }
  return count;
}

}  // namespace

SamplingOptions options_at(SamplingOptions options, std::int64_t position) {
  if (position == 0 || options.top_p == 0) return options;
  options.top_p *= std::pow(options.top_p_decay, static_cast<double>(position));
  // Without a bound a decayed nucleus ends as the likeliest token alone, never as 0, which stands for all tokens.
  options.top_p = std::max({options.top_p, options.top_p_bound, 1e-300});
  return options;
}

double sampling_uniform(std::uint64_t seed, std::int64_t prompt, std::int64_t sample, std::int64_t position) {
  const std::uint32_t word =
      philox4x32<7>({static_cast<std::uint32_t>(position), static_cast<std::uint32_t>(prompt),
                     static_cast<std::uint32_t>(sample), static_cast<std::uint32_t>(prompt >> 32)},
                    random_key(seed, 0, hash_name("sampling")))[0];
  return word / 4294967296.0;
}

void penalize_repetition(std::span<float> logits, std::span<const std::int32_t> context, double penalty) {
  if (penalty == 1) return;
  constexpr double kMost = std::numeric_limits<float>::max();  // a very strong penalty leaves numbers
  std::unordered_set<std::int32_t> seen;
  for (const std::int32_t token : context) {
    if (!seen.insert(token).second) continue;
    float& logit = logits[static_cast<std::size_t>(token)];
    logit = static_cast<float>(std::clamp(logit > 0 ? logit / penalty : logit * penalty, -kMost, kMost));
  }
}

bool all_finite(std::span<const float> logits) {
  std::uint32_t others = 0;  // a sum instead of an early end: compilers make vectors of that
#pragma omp simd reduction(+ : others)
  for (std::size_t i = 0; i < logits.size(); ++i) {
    others += (std::bit_cast<std::uint32_t>(logits[i]) & 0x7F800000u) == 0x7F800000u ? 1u : 0u;
  }
  return others == 0;
}

std::int32_t sample_token(std::span<const float> logits, const SamplingOptions& options, double uniform) {
  verify(all_finite(logits), ErrorKind::numerics, "{}", kNotFinite);
  if (options.top_k == 1) {
    return static_cast<std::int32_t>(std::find(logits.begin(), logits.end(), largest(logits)) - logits.begin());
  }
  Candidates candidates(logits, options.temperature);
  const std::size_t count = kept(candidates, options);
  double rest = uniform * candidates.sum(count);
  for (std::size_t i = 0; i < count; ++i) {
    rest -= candidates[i].probability;
    if (rest < 0) return candidates[i].token;
  }
  return candidates[count - 1].token;
}

double log_sum_exp(std::span<const float> logits) {
  const double highest = *std::max_element(logits.begin(), logits.end());
  double sum = 0;
  for (const float logit : logits) sum += std::exp(double{logit} - highest);
  return highest + std::log(sum);
}

std::vector<TokenLogProbability> likeliest_tokens(std::span<const float> logits, std::int64_t count) {
  std::vector<std::int32_t> tokens(logits.size());
  std::iota(tokens.begin(), tokens.end(), 0);
  const auto end =
      tokens.begin() + static_cast<std::ptrdiff_t>(std::min(logits.size(), static_cast<std::size_t>(count)));
  std::partial_sort(tokens.begin(), end, tokens.end(), [&](std::int32_t a, std::int32_t b) {
    const float first = logits[static_cast<std::size_t>(a)], second = logits[static_cast<std::size_t>(b)];
    return first != second ? first > second : a < b;
  });
  const double sum = log_sum_exp(logits);
  std::vector<TokenLogProbability> likeliest;
  for (auto token = tokens.begin(); token != end; ++token) {
    likeliest.push_back({*token, logits[static_cast<std::size_t>(*token)] - sum});
  }
  return likeliest;
}

std::string StopTexts::add(std::string_view piece) {
  if (stopped_) return {};
  held_ += piece;
  std::size_t stop = std::string::npos, safe = held_.size();
  for (const std::string& text : texts_) {
    stop = std::min(stop, held_.find(text));
    for (std::size_t length = std::min(text.size() - 1, held_.size()); length > 0; --length) {
      if (!held_.ends_with(std::string_view(text).substr(0, length))) continue;
      safe = std::min(safe, held_.size() - length);
      break;
    }
  }
  stopped_ = stop != std::string::npos;
  std::string shown = held_.substr(0, stopped_ ? stop : safe);
  held_.erase(0, stopped_ ? held_.size() : safe);
  return shown;
}

std::string StopTexts::rest() {
  std::string rest;
  std::swap(rest, held_);
  return rest;
}

}  // namespace megatron

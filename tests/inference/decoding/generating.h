// Helpers for tests of generation: results of jobs on any layout, their comparison, and texts by the definition, for
// which the whole context is computed anew for each token.
#pragma once

#include <algorithm>
#include <mutex>

#include "inference/decoding/beam_search.h"
#include "inference/decoding/decoding.h"
#include "inference/decoding/generate.h"
#include "support/catch.h"

namespace megatron::test {

constexpr std::int64_t kContext = 16;

/// `end`: of documents; 60 is not in the vocabulary: never.
inline GenerationOptions options_of(std::int32_t end, std::int64_t new_tokens) {
  GenerationOptions options;
  options.ends = {end};
  options.sampling.max_new_tokens = new_tokens;
  return options;
}

struct Together {
  std::int64_t samples = 1, groups = 1;
  std::int64_t encoder_samples = 0;  ///< in one pass over an encoder; 0: as many as sizes_for() says
};

/// Each job's result on the first rank of its replica, or on the rank that samples; both must be the same.
inline std::vector<Generated> generate_on(const std::string& run, const Layout& layout, Together together,
                                          const GenerationOptions& options, const std::vector<GenerationJob>& all,
                                          const StopsAt& stops = nullptr, const NewToken& told = nullptr,
                                          bool separate = false, std::int64_t context = kContext) {
  std::vector<Generated> results(all.size()), sampled(all.size());
  std::mutex mutex;
  DecoderSizes sizes = sizes_for(all, options, context, together.samples, together.groups);
  if (together.encoder_samples > 0) sizes.encoder_samples = together.encoder_samples;
  decode(run, layout, DType::f32, sizes, separate, [&](Decoder& decoder) {
    const std::vector<Generated> own = generate(decoder, all, options, stops, told);
    const std::lock_guard lock(mutex);
    for (std::size_t i = 0; i < own.size(); ++i) {
      if (static_cast<int>(i) % layout.data != decoder.grid().at().data) continue;
      if (decoder.grid().model().rank() == 0) results[i] = own[i];
      if (decoder.samples_here()) sampled[i] = own[i];
    }
  });
  for (std::size_t i = 0; i < all.size(); ++i) {
    CHECK(results[i].tokens == sampled[i].tokens);
    CHECK(results[i].ending == sampled[i].ending);
    CHECK(results[i].log_probabilities == sampled[i].log_probabilities);
    CHECK(results[i].score == sampled[i].score);
  }
  return results;
}

inline void check_same(const std::vector<Generated>& got, const std::vector<Generated>& want) {
  REQUIRE(got.size() == want.size());
  for (std::size_t i = 0; i < got.size(); ++i) {
    CAPTURE(i);
    CHECK(got[i].tokens == want[i].tokens);
    CHECK(got[i].ending == want[i].ending);
    CHECK(got[i].score == Approx(want[i].score).margin(1e-4));
    REQUIRE(got[i].log_probabilities.size() == want[i].log_probabilities.size());
    for (std::size_t j = 0; j < got[i].log_probabilities.size(); ++j) {
      CHECK(got[i].log_probabilities[j] == Approx(want[i].log_probabilities[j]).margin(1e-4));
    }
    REQUIRE(got[i].likeliest.size() == want[i].likeliest.size());
    for (std::size_t j = 0; j < got[i].likeliest.size(); ++j) {
      REQUIRE(got[i].likeliest[j].size() == want[i].likeliest[j].size());
      for (std::size_t k = 0; k < got[i].likeliest[j].size(); ++k) {
        CHECK(got[i].likeliest[j][k].token == want[i].likeliest[j][k].token);
        CHECK(got[i].likeliest[j][k].value == Approx(want[i].likeliest[j][k].value).margin(1e-4));
      }
    }
  }
}

/// No longer than the context. `encoded`: what an encoder reads.
inline Tokens greedy_by_definition(const std::string& run, Tokens text, std::int64_t count,
                                   const Tokens& encoded = {}) {
  const std::size_t prompt = text.size();
  for (std::int64_t i = 0; i < count; ++i) {
    const std::vector<float> logits = uncached(run, std::span(&text, 1), encoded)[0];
    const auto last = logits.end() - 50;
    text.push_back(static_cast<std::int32_t>(std::max_element(last, logits.end()) - last));
  }
  return {text.begin() + static_cast<std::ptrdiff_t>(prompt), text.end()};
}

inline Hypothesis beams_by_definition(const std::string& run, const Tokens& prompt, const BeamOptions& options,
                                      std::int64_t count, const Tokens& encoded = {}) {
  BeamSearch search(options);
  std::vector<Tokens> open = {prompt};
  for (std::int64_t i = 0; i < count && !search.done(); ++i) {
    std::vector<float> last;
    for (const std::vector<float>& logits : uncached(run, open, encoded))
      last.insert(last.end(), logits.end() - 50, logits.end());
    std::vector<Tokens> next;
    for (const BeamSearch::Choice& choice : search.advance(last, 50)) {
      next.push_back(open[static_cast<std::size_t>(choice.beam)]);
      next.back().push_back(choice.token);
    }
    open = std::move(next);
  }
  return search.finish().front();
}

}  // namespace megatron::test

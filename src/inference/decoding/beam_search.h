// Beam search for one prompt: which beams continue, and which texts have ended. The bookkeeping alone: the caller runs
// the model, and reorders its caches as the choices say. As Megatron-LM's, whose length formula it keeps.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace megatron {

struct BeamOptions {
  std::int64_t beams = 1;
  double length_penalty = 1;  ///< a text's score is its log-probability / length^length_penalty, its end token counted
  std::vector<std::int32_t> ends = {0};  ///< tokens that end a text, at least one
};

/// A text and its score, with the end token's probability but without the token itself.
struct Hypothesis {
  std::vector<std::int32_t> tokens;
  double score = 0;
  bool finished = false;  ///< by an end token
};

class BeamSearch {
 public:
  explicit BeamSearch(const BeamOptions& options) : options_(options) {}

  /// One that continues: which of the last open beams it comes from, and its new token.
  struct Choice {
    std::int64_t beam = 0;
    std::int32_t token = 0;
  };
  /// `logits`: a row of `vocab` for each open beam, [rows, vocab]; the first time one row, after the prompt. Returns
  /// the beams that are open now, best first: `beams` of them, or fewer where the vocabulary has no more. Of the
  /// (1 + ends)·beams best continuations those that end are texts if they are among the first `beams`. Not after
  /// done(). Error(numerics) if a logit is not finite.
  const std::vector<Choice>& advance(std::span<const float> logits, std::int64_t vocab);
  /// There are `beams` texts, and no open beam can become better than the worst of them.
  bool done() const { return done_; }
  /// The texts, best first, at most `beams`; those that are open count as texts unless done().
  std::vector<Hypothesis> finish();

 private:
  struct Beam {
    std::vector<std::int32_t> tokens;
    double sum = 0;  // the log-probabilities' sum
  };
  void add(const std::vector<std::int32_t>& tokens, double sum, std::int64_t length, bool finished);
  double score(double sum, std::int64_t length) const;

  BeamOptions options_;
  std::int64_t length_ = 0;  // tokens generated
  std::vector<Beam> open_ = {Beam{}};
  std::vector<Choice> choices_;
  std::vector<Hypothesis> texts_;  // best first
  bool done_ = false;
};

}  // namespace megatron

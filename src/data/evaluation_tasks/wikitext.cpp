#include <algorithm>
#include <cmath>

#include "data/evaluation_tasks/detokenizer.h"
#include "data/evaluation_tasks/example_text.h"
#include "data/evaluation_tasks/tasks.h"

namespace megatron {

namespace {

// Words as WikiText separates them: pieces between single spaces.
std::int64_t words_between_spaces(std::string_view text) {
  text = without_trailing_space(without_leading_space(text));
  return std::count(text.begin(), text.end(), ' ') + 1;
}

class Wikitext final : public EvaluationTask {
 public:
  explicit Wikitext(const TaskInput& input) {
    const std::string_view text = checked_utf8(input);
    words_ = words_between_spaces(text);
    tokens_ = input.encode("", detokenized_wikitext(text)).ids;
    if (input.begin) tokens_.insert(tokens_.begin(), *input.begin);
    windows_ = text_windows(input, tokens_, std::min<std::int64_t>(32, input.context));
  }

  std::span<const ScoredSequence> sequences() const override { return windows_; }

  EvaluationResult result(std::span<const TargetScore> scores) const override {
    EvaluationResult result{.task = "wikitext",
                            .examples = static_cast<std::int64_t>(windows_.size()),
                            .tokens = static_cast<std::int64_t>(tokens_.size()) - 1};
    double sum = 0;
    for (const TargetScore& score : scores) sum -= score.log_probability;
    result.loss = sum / static_cast<double>(result.tokens);
    if (words_ > 1) {  // one word alone has no loss per word
      result.token_ratio = static_cast<double>(result.tokens) / static_cast<double>(words_ - 1);
      result.adjusted_perplexity = std::exp(std::min(20.0, result.loss * *result.token_ratio));
    }
    return result;
  }

 private:
  std::int64_t words_ = 0;
  std::vector<std::int32_t> tokens_;
  std::vector<ScoredSequence> windows_;
};

}  // namespace

std::unique_ptr<EvaluationTask> make_wikitext(const TaskInput& input) {
  return std::make_unique<Wikitext>(input);
}

}  // namespace megatron

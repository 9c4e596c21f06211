#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "evaluation/detokenizer.h"
#include "evaluation/example_text.h"
#include "evaluation/tasks.h"

namespace megatron {

namespace {

// Words as WikiText separates them: pieces between single spaces.
std::int64_t words_in(std::string_view text) {
  text = without_trailing_space(without_leading_space(text));
  return std::count(text.begin(), text.end(), ' ') + 1;
}

// Window i begins at token i · stride. All but the first count their last `stride` targets only, so that each of these
// has at least context - stride tokens in front of it, and every target of the text counts once.
class Wikitext final : public EvaluationTask {
 public:
  explicit Wikitext(const TaskInput& input) {
    const std::string_view text = checked_utf8(input);
    words_ = words_in(text);
    input.encode(detokenized_wikitext(text), tokens_);
    verify(tokens_.size() >= 2, ErrorKind::data, "{} has {} tokens; the loss of a text needs two", input.path,
           tokens_.size());
    const auto count = static_cast<std::int64_t>(tokens_.size());
    const std::int64_t stride = input.stride.value_or(std::min<std::int64_t>(32, input.context));
    verify(stride >= 1 && stride <= input.context, ErrorKind::configuration,
           "a stride of {}: between 1 and the model's context, {}", stride, input.context);
    const std::span<const std::int32_t> all = tokens_;
    for (std::int64_t first = 0, scored = 1; scored < count; first += stride) {
      const std::int64_t end = std::min(first + input.context + 1, count);
      windows_.push_back(
          {all.subspan(static_cast<std::size_t>(first), static_cast<std::size_t>(end - first)), scored - first});
      scored = end;
    }
  }

  std::span<const ScoredSequence> sequences() const override { return windows_; }

  EvaluationResult result(std::span<const TargetScore> scores) const override {
    EvaluationResult result{.task = "wikitext",
                            .examples = static_cast<std::int64_t>(windows_.size()),
                            .tokens = static_cast<std::int64_t>(tokens_.size()) - 1};
    double sum = 0;
    for (const TargetScore& score : scores) sum -= score.log_probability;
    result.loss = sum / static_cast<double>(result.tokens);
    if (words_ > 1) {  // of one word there is no loss per word
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

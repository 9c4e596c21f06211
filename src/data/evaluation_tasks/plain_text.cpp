#include <algorithm>
#include <cmath>
#include <numbers>

#include "base/text/utf8.h"
#include "data/evaluation_tasks/example_text.h"
#include "data/evaluation_tasks/tasks.h"

namespace megatron {

namespace {

// Words as people count them: pieces between white space.
std::int64_t words_between_white_space(std::string_view text) {
  std::int64_t words = 0;
  for (bool before = true; !text.empty();) {
    const CodePoint next = first_code_point(text);
    const bool space = is_white_space(next.value);
    words += before && !space ? 1 : 0;
    before = space;
    text.remove_prefix(next.bytes);
  }
  return words;
}

// All tokens are targets, the first one too, so that the bits are those of all bytes.
class PlainText final : public EvaluationTask {
 public:
  explicit PlainText(const TaskInput& input) {
    const std::string_view text = checked_utf8(input);
    bytes_ = static_cast<std::int64_t>(text.size());
    words_ = words_between_white_space(text);
    tokens_ = input.encode("", text).ids;
    tokens_.insert(tokens_.begin(), input.begin.value_or(input.before));
    windows_ = text_windows(input, tokens_, std::max<std::int64_t>(1, input.context / 2));
  }

  std::span<const ScoredSequence> sequences() const override { return windows_; }

  EvaluationResult result(std::span<const TargetScore> scores) const override {
    EvaluationResult result{.task = "text",
                            .examples = static_cast<std::int64_t>(windows_.size()),
                            .tokens = static_cast<std::int64_t>(scores.size())};
    double sum = 0;
    for (const TargetScore& score : scores) sum -= score.log_probability;
    result.loss = sum / static_cast<double>(result.tokens);
    const double bits = sum / std::numbers::ln2;
    result.bits_per_byte = bits / static_cast<double>(bytes_);
    if (words_ > 0) result.bits_per_word = bits / static_cast<double>(words_);
    return result;
  }

 private:
  std::int64_t bytes_ = 0, words_ = 0;
  std::vector<std::int32_t> tokens_;
  std::vector<ScoredSequence> windows_;
};

}  // namespace

std::unique_ptr<EvaluationTask> make_plain_text(const TaskInput& input) {
  return std::make_unique<PlainText>(input);
}

}  // namespace megatron

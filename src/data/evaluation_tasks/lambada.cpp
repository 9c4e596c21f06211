#include "data/evaluation_tasks/example_text.h"
#include "data/evaluation_tasks/tasks.h"

namespace megatron {

namespace {

class Lambada final : public EvaluationTask {
 public:
  explicit Lambada(const TaskInput& input) {
    visit_lines(input, [&](const ExampleLine& line) { add(line); });
  }

  std::span<const ScoredSequence> sequences() const override { return texts_.all(); }

  // A text is right if each of its targets is.
  EvaluationResult result(std::span<const TargetScore> scores) const override {
    EvaluationResult result{.task = "lambada",
                            .examples = static_cast<std::int64_t>(texts_.all().size()),
                            .tokens = static_cast<std::int64_t>(scores.size()),
                            .shortened = shortened_};
    std::int64_t right = 0;
    double sum = 0;
    std::size_t at = 0;
    for (const ScoredSequence& text : texts_.all()) {
      bool all_right = true;
      for (std::int64_t i = 0; i < text.targets(); ++i, ++at) {
        sum -= scores[at].log_probability;
        all_right = all_right && scores[at].right;
      }
      right += all_right ? 1 : 0;
    }
    result.loss = sum / static_cast<double>(result.tokens);
    result.accuracy = static_cast<double>(right) / static_cast<double>(result.examples);
    return result;
  }

 private:
  void add(const ExampleLine& line) {
    std::string buffer, text;
    bool found = false;
    line.visit_members([&](std::string_view key, JsonReader& json) {
      if (key != "text") return json.skip_value();
      text = json.string(buffer);
      found = true;
    });
    if (!found) line.refuse("no key \"text\"");
    if (without_leading_space(text).empty()) line.refuse("\"text\" is empty");
    const TaskInput& input = line.input;
    TaskInput::Pair pair;
    if (input.whole_word) {
      const std::string_view word = last_word(text);
      const std::string_view start =
          std::string_view(text).substr(0, static_cast<std::size_t>(word.data() - text.data()));
      pair = input.encode(without_trailing_space(without_leading_space(start)), " " + std::string(word));
    } else {
      pair = input.encode("", text);
      pair.context = pair.ids.empty() ? 0 : pair.ids.size() - 1;
    }
    if (texts_.add(line, std::move(pair))) ++shortened_;
  }

  FittedSequences texts_;
  std::int64_t shortened_ = 0;
};

}  // namespace

std::unique_ptr<EvaluationTask> make_lambada(const TaskInput& input) {
  return std::make_unique<Lambada>(input);
}

}  // namespace megatron

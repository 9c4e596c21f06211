#include "data/evaluation_tasks/question_files.h"
#include "data/evaluation_tasks/tasks.h"

namespace megatron {

namespace {

class Choices final : public EvaluationTask {
 public:
  explicit Choices(const TaskInput& input) {
    visit_questions(input, [&](const ExampleLine& line, const Question& question) { add(line, question); });
  }

  std::span<const ScoredSequence> sequences() const override { return texts_.all(); }

  // The first of equally likely choices is taken.
  EvaluationResult result(std::span<const TargetScore> scores) const override {
    EvaluationResult result{
        .task = "choices", .examples = static_cast<std::int64_t>(questions_.size()), .shortened = shortened_};
    std::int64_t right = 0, right_by_byte = 0;
    double sum = 0;
    std::size_t text = 0, at = 0;
    for (const Sizes& question : questions_) {
      std::vector<double> summed, by_byte;
      for (std::size_t i = 0; i < question.bytes.size(); ++i, ++text) {
        double log_probability = 0;
        const std::int64_t targets = texts_.all()[text].targets();
        for (std::int64_t k = 0; k < targets; ++k) log_probability += scores[at++].log_probability;
        summed.push_back(log_probability);
        by_byte.push_back(log_probability / static_cast<double>(question.bytes[i]));
        if (i == question.answer) {
          sum -= log_probability;
          result.tokens += targets;
        }
      }
      right += largest(summed) == question.answer ? 1 : 0;
      right_by_byte += largest(by_byte) == question.answer ? 1 : 0;
    }
    result.loss = sum / static_cast<double>(result.tokens);
    result.accuracy = static_cast<double>(right) / static_cast<double>(result.examples);
    result.accuracy_normalized = static_cast<double>(right_by_byte) / static_cast<double>(result.examples);
    return result;
  }

 private:
  struct Sizes {
    std::vector<std::size_t> bytes;  // each choice's
    std::size_t answer;
  };

  static std::size_t largest(const std::vector<double>& values) {
    std::size_t best = 0;
    for (std::size_t i = 1; i < values.size(); ++i) best = values[i] > values[best] ? i : best;
    return best;
  }

  // White space at the end of the context belongs to the choice, as it does where words are made into tokens. Where
  // there is none between them, a space is put there.
  void add(const ExampleLine& line, const Question& question) {
    const std::string_view context = without_trailing_space(question.context);
    const std::string_view space = std::string_view(question.context).substr(context.size());
    Sizes sizes{{}, question.answer};
    bool shortened = false;
    for (const std::string& choice : question.choices) {
      if (without_leading_space(choice).empty()) line.refuse("a choice is empty");
      const bool separate =
          question.context.empty() || !space.empty() || without_leading_space(choice).size() < choice.size();
      const std::string target = (separate ? std::string(space) : " ") + choice;
      shortened = texts_.add(line, line.input.encode(context, target)) || shortened;
      sizes.bytes.push_back(choice.size());
    }
    shortened_ += shortened ? 1 : 0;
    questions_.push_back(std::move(sizes));
  }

  FittedSequences texts_;
  std::vector<Sizes> questions_;
  std::int64_t shortened_ = 0;
};

}  // namespace

std::unique_ptr<EvaluationTask> make_choices(const TaskInput& input) {
  return std::make_unique<Choices>(input);
}

}  // namespace megatron

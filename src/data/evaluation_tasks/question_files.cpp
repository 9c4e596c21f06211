#include "data/evaluation_tasks/question_files.h"

#include <algorithm>
#include <optional>

#include "base/core/error.h"
#include "base/text/text.h"
#include "data/evaluation_tasks/csv_record.h"

namespace megatron {

namespace {

/// All that a line of any of the forms may say.
struct Members {
  std::optional<std::string> context, question, goal, ctx, ctx_a, ctx_b, activity_label, subject;
  std::optional<std::string> answer, label, answer_key;  ///< as text; the line's form says which one counts
  std::optional<std::string> first_solution, second_solution;
  std::optional<std::vector<std::string>> choices, names;  ///< names: of ARC's choices, such as "A"
};

std::vector<std::string> strings(JsonReader& json) {
  std::vector<std::string> list;
  std::string buffer;
  visit_array(json, "a list of strings", [&] { list.emplace_back(json.string(buffer)); });
  return list;
}

/// A string, or a whole number; nothing for another value, which may belong to a user's own form.
std::optional<std::string> name_or_number(JsonReader& json) {
  std::string buffer;
  const char first = json.peek();
  if (first == '"') return std::string(json.string(buffer));
  if (first == '-' || (first >= '0' && first <= '9')) return std::to_string(json.integer());
  json.skip_value();
  return std::nullopt;
}

/// ARC's choices: {"text": [...], "label": [...]}, or a list of {"text", "label"}; another form's is a list of strings.
void read_choices(JsonReader& json, Members& members) {
  std::string buffer;
  members.choices.emplace();
  if (json.peek() == '{') {
    visit_object(json, "an object", [&](std::string_view key) {
      if (key == "text") return void(members.choices = strings(json));
      if (key == "label") return void(members.names = strings(json));
      json.skip_value();
    });
    return;
  }
  visit_array(json, "a list of strings", [&] {
    if (json.peek() != '{') return void(members.choices->emplace_back(json.string(buffer)));
    if (!members.names) members.names.emplace();
    visit_object(json, "an object", [&](std::string_view key) {
      if (key == "text") return void(members.choices->emplace_back(json.string(buffer)));
      if (key == "label") return void(members.names->emplace_back(json.string(buffer)));
      json.skip_value();
    });
  });
}

Members read_members(const ExampleLine& line) {
  Members members;
  static constexpr std::pair<std::string_view, std::optional<std::string> Members::*> kTexts[] = {
      {"context", &Members::context}, {"goal", &Members::goal},           {"ctx", &Members::ctx},
      {"ctx_a", &Members::ctx_a},     {"ctx_b", &Members::ctx_b},         {"activity_label", &Members::activity_label},
      {"subject", &Members::subject}, {"sol1", &Members::first_solution}, {"sol2", &Members::second_solution}};
  std::string buffer;
  line.visit_members([&](std::string_view key, JsonReader& json) {
    if (key == "choices") return read_choices(json, members);
    if (key == "endings") return void(members.choices = strings(json));
    if (key == "answer") return void(members.answer = name_or_number(json));
    if (key == "label") return void(members.label = name_or_number(json));
    if (key == "answerKey") return void(members.answer_key = name_or_number(json));
    if (key == "question" && json.peek() == '{') {  // ARC's own files
      return visit_object(json, "an object", [&](std::string_view part) {
        if (part == "stem") return void(members.question = json.string(buffer));
        if (part == "choices") return read_choices(json, members);
        json.skip_value();
      });
    }
    if (key != "context" && json.peek() != '"') return json.skip_value();  // not a text of these forms
    if (key == "question") return void(members.question = json.string(buffer));
    for (const auto& [name, member] : kTexts) {
      if (key == name) return void(members.*member = json.string(buffer));
    }
    json.skip_value();
  });
  return members;
}

void replace_all(std::string& text, std::string_view from, std::string_view to) {
  for (std::size_t at = 0; (at = text.find(from, at)) != std::string::npos; at += to.size()) {
    text.replace(at, from.size(), to);
  }
}

/// HellaSwag's texts of WikiHow have marks in brackets.
std::string without_marks(std::string_view marked) {
  std::string text(without_trailing_space(without_leading_space(marked)));
  replace_all(text, " [title]", ". ");
  for (std::size_t open = 0; (open = text.find('[', open)) != std::string::npos;) {
    const std::size_t close = text.find_first_of("]\n", open);
    if (close == std::string::npos) break;
    text[close] == ']' ? void(text.erase(open, close - open + 1)) : void(open = close);
  }
  replace_all(text, "  ", " ");
  return text;
}

/// The first letter as a capital, the others not; of ASCII.
std::string capitalized(std::string text) {
  const auto is_letter = [](char c, char first) { return c >= first && c < first + 26; };
  for (char& c : text) {
    if (is_letter(c, 'A')) c = static_cast<char>(c - 'A' + 'a');
  }
  if (!text.empty() && is_letter(text[0], 'a')) text[0] = static_cast<char>(text[0] - 'a' + 'A');
  return text;
}

std::string asked(const std::string& question) {
  return "Question: " + question + "\nAnswer:";
}

/// MMLU's question, whose choices are letters. A subject's name has underscores.
Question mmlu_question(std::string subject, std::string_view question, const std::vector<std::string>& choices) {
  Question made;
  if (!subject.empty()) {
    replace_all(subject, "_", " ");
    made.context = "The following are multiple choice questions (with answers) about " + subject + ".\n\n";
  }
  made.context += without_trailing_space(without_leading_space(question));
  for (std::size_t i = 0; i < choices.size(); ++i) {
    const std::string letter(1, static_cast<char>('A' + i));
    made.context += "\n" + letter + ". " + choices[i];
    made.choices.push_back(letter);
  }
  made.context += "\nAnswer:";
  return made;
}

/// A line's form by what it has. MMLU numbers its choices, ARC names them.
Question question_of(const ExampleLine& line, Members& members) {
  Question made;
  if (members.choices) made.choices = *members.choices;
  if (members.context) {
    made.context = *members.context;
  } else if (members.activity_label && (members.ctx || members.ctx_a)) {
    const std::string text = members.ctx_a && members.ctx_b ? *members.ctx_a + " " + capitalized(*members.ctx_b)
                                                            : members.ctx.value_or(members.ctx_a.value_or(""));
    made.context = without_marks(*members.activity_label + ": " + text);
    for (std::string& choice : made.choices) choice = without_marks(choice);
    members.answer = members.label;
  } else if (members.goal && members.first_solution && members.second_solution) {
    made.context = asked(*members.goal);
    members.choices = made.choices = {*members.first_solution, *members.second_solution};
    members.answer = members.label;
  } else if (members.question && members.names) {
    made.context = asked(*members.question);
    members.answer = members.answer_key;
  } else if (members.question && members.choices) {
    if (members.choices->size() > 26)
      line.refuse(fmt::format("{} choices, more than letters", members.choices->size()));
    made = mmlu_question(members.subject.value_or(""), *members.question, *members.choices);
  } else {
    line.refuse("no key \"context\", and not the keys of HellaSwag, PIQA, ARC or MMLU (docs/evaluation.md lists them)");
  }
  if (!members.choices) line.refuse("no key \"choices\"");
  if (made.choices.empty()) line.refuse("\"choices\" is empty");
  return made;
}

/// The right choice, by its name or number.
std::size_t number_of_answer(const ExampleLine& line, const Members& members, std::size_t choices) {
  if (!members.answer || members.answer->empty()) {
    line.refuse(members.first_solution ? "no key \"label\": PIQA's are a file by themselves, which --labels names"
                                       : "no key \"answer\"");
  }
  const std::string& answer = *members.answer;
  if (members.names) {
    const auto found = std::find(members.names->begin(), members.names->end(), answer);
    const auto number = static_cast<std::size_t>(found - members.names->begin());
    if (number < choices) return number;
    line.refuse(fmt::format("the answer is \"{}\", and no choice has this label", printable(answer.substr(0, 60))));
  }
  const bool digits = answer.size() < 10 && answer.find_first_not_of("0123456789") == std::string::npos;
  const std::size_t number = digits ? std::stoul(answer) : choices;
  if (number < choices) return number;
  line.refuse(fmt::format("\"answer\" is {}, and there are {} choices; the first one is 0",
                          printable(answer.substr(0, 60)), choices));
}

/// Answers of a file by themselves: a number on each line.
class Labels {
 public:
  explicit Labels(const TaskInput& input) : input_(input), rest_(input.labels) {}

  bool given() const { return !input_.labels.empty(); }
  std::string next(const ExampleLine& line) {
    if (rest_.empty()) line.refuse(fmt::format("the file of labels has {}, fewer than questions", taken_));
    const std::size_t end = rest_.find('\n');
    const std::string label(without_trailing_space(without_leading_space(rest_.substr(0, end))));
    rest_ = end == std::string_view::npos ? std::string_view() : rest_.substr(end + 1);
    ++taken_;
    return label;
  }
  void finish() const {
    verify(without_leading_space(rest_).empty(), ErrorKind::data,
           "{} has {} questions, and the file of labels has more lines", input_.path, taken_);
  }

 private:
  const TaskInput& input_;
  std::string_view rest_;
  std::int64_t taken_ = 0;
};

/// "abstract_algebra" of ".../abstract_algebra_test.csv".
std::string subject_of(std::string_view path) {
  path = path.substr(path.rfind('/') + 1);
  path = path.substr(0, path.rfind('.'));
  for (const std::string_view end : {"_test", "_val", "_dev"}) {
    if (path.ends_with(end)) path.remove_suffix(end.size());
  }
  return std::string(path);
}

}  // namespace

void visit_questions(const TaskInput& input,
                     const std::function<void(const ExampleLine& line, const Question& question)>& take) {
  Labels labels(input);
  const auto answered = [&](const ExampleLine& line, Members members, Question question) {
    if (labels.given()) members.answer = labels.next(line);
    question.answer = number_of_answer(line, members, question.choices.size());
    take(line, question);
  };
  if (input.path.ends_with(".csv")) {
    const std::string subject = subject_of(input.path);
    visit_csv(input, 6, [&](const ExampleLine& line, const std::vector<std::string>& cells) {
      const std::vector<std::string> choices(cells.begin() + 1, cells.begin() + 5);
      Members members;
      members.names = {"A", "B", "C", "D"};
      members.answer = without_trailing_space(without_leading_space(cells[5]));
      answered(line, members, mmlu_question(subject, cells[0], choices));
    });
  } else {
    visit_lines(input, [&](const ExampleLine& line) {
      Members members = read_members(line);
      Question question = question_of(line, members);
      answered(line, std::move(members), std::move(question));
    });
  }
  labels.finish();
}

}  // namespace megatron

#include "data/finetuning/labelled_examples.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <utility>

#include "base/core/error.h"
#include "base/text/text.h"
#include "data/evaluation_tasks/example_text.h"
#include "data/finetuning/members.h"

namespace megatron {

namespace {

std::vector<std::string> read_strings(JsonReader& json) {
  std::vector<std::string> strings;
  std::string buffer;
  visit_array(json, "a list of strings", [&] { strings.emplace_back(json.string(buffer)); });
  return strings;
}

std::vector<std::vector<std::string>> read_lists(JsonReader& json) {
  std::vector<std::vector<std::string>> lists;
  visit_array(json, "a list of lists", [&] { lists.push_back(read_strings(json)); });
  return lists;
}

/// "a", "b", "c" and 12 others.
std::string some_of(const std::vector<std::string>& labels) {
  constexpr std::size_t kShown = 8;
  std::vector<std::string> shown;
  for (const std::string& label : labels) {
    if (shown.size() < kShown) shown.push_back(fmt::format("\"{}\"", printable(label)));
  }
  const std::string rest =
      labels.size() > kShown ? fmt::format(" and {} others", labels.size() - kShown) : std::string();
  return fmt::format("{}{}", fmt::join(shown, ", "), rest);
}

/// MNLI's files name their labels, and others that number them do so in another order. Labels that are numbers
/// are matched as they are written.
bool may_be_numbered(const ExampleForm& form) {
  const auto is_number = [](const std::string& label) {
    return !label.empty() && label.find_first_not_of("0123456789") == std::string::npos;
  };
  return form.format != "mnli" && std::none_of(form.labels.begin(), form.labels.end(), is_number);
}

std::int32_t number_of_label(const ExampleLine& line, const ExampleForm& form, std::string_view label) {
  const std::vector<std::string>& labels = form.labels;
  const auto found = std::find(labels.begin(), labels.end(), label);
  if (found != labels.end()) return static_cast<std::int32_t>(found - labels.begin());
  const bool numbered = may_be_numbered(form);
  std::size_t number = labels.size();
  std::from_chars(label.data(), label.data() + label.size(), number);
  if (numbered && number < labels.size() && std::to_string(number) == label) return static_cast<std::int32_t>(number);
  line.refuse(fmt::format("the label is \"{}\", and the labels are {}{}", printable(label.substr(0, 60)),
                          some_of(labels),
                          numbered ? fmt::format(", or their numbers, 0 to {}", labels.size() - 1) : ""));
}

/// The label or answer of a line of JSON: none if it is null and may be.
template <class T, class Read>
void read_label(const ExampleLine& line, const ExampleForm& form, std::string_view key, std::optional<T>& label,
                JsonReader& json, const Read& read) {
  if (form.may_lack_labels && json.peek() == 'n') return json.skip_value();
  set_once(line, key, label, read());
}

/// Whether a line has its label or answer. Error(data) if it must.
template <class T>
bool has_label(const ExampleLine& line, const ExampleForm& form, std::string_view key, const std::optional<T>& label) {
  if (label || form.may_lack_labels) return label.has_value();
  line.refuse(fmt::format("no key \"{}\"; megatron_eval --predictions predicts labels for texts without it", key));
}

// ---- JSON lines -----------------------------------------------------------------------------------------------------

void read_pair(const ExampleLine& line, const ExampleForm& form, const TakeExample& take) {
  std::optional<std::string> a, b, label;
  std::string buffer;
  line.visit_members([&](std::string_view key, JsonReader& json) {
    if (key == "text_a") {
      set_once(line, key, a, std::string(json.string(buffer)));
    } else if (key == "text_b") {
      set_once(line, key, b, std::string(json.string(buffer)));
    } else if (key == "label") {
      read_label(line, form, key, label, json, [&] {
        return json.peek() == '"' ? std::string(json.string(buffer)) : std::to_string(json.integer());
      });
    } else {
      json.skip_value();
    }
  });
  required(line, "text_a", a);
  take({.texts = {{*a, b ? std::optional<std::string_view>(*b) : std::nullopt}},
        .label = has_label(line, form, "label", label) ? number_of_label(line, form, *label) : -1});
}

void read_question(const ExampleLine& line, const ExampleForm& form, const TakeExample& take) {
  std::optional<std::string> context;
  std::optional<std::vector<std::string>> choices;
  std::optional<std::uint64_t> answer;
  std::string buffer;
  line.visit_members([&](std::string_view key, JsonReader& json) {
    if (key == "context") {
      set_once(line, key, context, std::string(json.string(buffer)));
    } else if (key == "choices") {
      set_once(line, key, choices, read_strings(json));
    } else if (key == "answer") {
      read_label(line, form, key, answer, json, [&] { return json.integer(); });
    } else {
      json.skip_value();
    }
  });
  required(line, "context", context);
  const auto count = static_cast<std::int64_t>(required(line, "choices", choices).size());
  if (count != form.choices) line.refuse(fmt::format("{} choices, and task.choices = {}", count, form.choices));
  const bool answered = has_label(line, form, "answer", answer);
  if (answered && *answer >= choices->size()) {
    line.refuse(fmt::format("\"answer\" is {}, and there are {} choices; the first one is 0", *answer, count));
  }
  LabelledExample example{.texts = {}, .label = answered ? static_cast<std::int32_t>(*answer) : -1};
  for (const std::string& choice : *choices) example.texts.push_back({*context, choice});
  take(example);
}

// ---- RACE -----------------------------------------------------------------------------------------------------------

struct Article {
  std::optional<std::string> text;
  std::optional<std::vector<std::string>> questions, answers;
  std::optional<std::vector<std::vector<std::string>>> options;
};

Article read_article(const ExampleLine& line, const ExampleForm& form) {
  Article article;
  std::string buffer;
  line.visit_members([&](std::string_view key, JsonReader& json) {
    if (key == "article") {
      set_once(line, key, article.text, std::string(json.string(buffer)));
    } else if (key == "questions") {
      set_once(line, key, article.questions, read_strings(json));
    } else if (key == "options") {
      set_once(line, key, article.options, read_lists(json));
    } else if (key == "answers") {
      read_label(line, form, key, article.answers, json, [&] { return read_strings(json); });
    } else {
      json.skip_value();
    }
  });
  const std::size_t questions = required(line, "questions", article.questions).size();
  required(line, "article", article.text);
  const std::size_t options = required(line, "options", article.options).size();
  const std::size_t answers = has_label(line, form, "answers", article.answers) ? article.answers->size() : questions;
  if (options != questions || answers != questions) {
    line.refuse(fmt::format("{} questions with {} lists of options and {} answers", questions, options, answers));
  }
  return article;
}

/// The option in the place of a gap, or after the question.
std::string answered(std::string_view question, std::string_view option) {
  if (question.find('_') == std::string_view::npos) return fmt::format("{} {}", question, option);
  std::string text;
  for (const char c : question) c == '_' ? text += option : text += c;
  return text;
}

void read_article_questions(const ExampleLine& line, const ExampleForm& form, const TakeExample& take) {
  const Article article = read_article(line, form);
  const std::string context = clean_text(*article.text);
  for (std::size_t i = 0; i < article.questions->size(); ++i) {
    const std::vector<std::string>& options = (*article.options)[i];
    if (static_cast<std::int64_t>(options.size()) != form.choices) {
      line.refuse(
          fmt::format("question {} has {} options, and task.choices = {}", i + 1, options.size(), form.choices));
    }
    std::int32_t label = -1;
    if (article.answers) {
      const std::string& answer = (*article.answers)[i];
      if (answer.size() != 1 || answer[0] < 'A' || static_cast<std::size_t>(answer[0] - 'A') >= options.size()) {
        line.refuse(fmt::format("the answer of question {} is \"{}\", and its options are A to {}", i + 1,
                                printable(std::string_view(answer).substr(0, 60)),
                                static_cast<char>('A' + std::min<std::size_t>(options.size(), 26) - 1)));
      }
      label = answer[0] - 'A';
    }
    std::vector<std::string> texts;
    for (const std::string& option : options) texts.push_back(clean_text(answered((*article.questions)[i], option)));
    LabelledExample example{.texts = {}, .label = label};
    for (const std::string& text : texts) example.texts.push_back({text, context});
    take(example);
  }
}

// ---- Tab-separated columns ------------------------------------------------------------------------------------------

/// Where the texts and the label are.
struct Columns {
  std::size_t count = 0, a = 0;
  std::optional<std::size_t> b, label;
};

std::string_view stripped(std::string_view cell) {
  return without_trailing_space(without_leading_space(cell));
}

std::vector<std::string_view> cells_of(std::string_view line) {
  if (line.ends_with('\r')) line.remove_suffix(1);
  std::vector<std::string_view> cells;
  for (;;) {
    const std::size_t tab = line.find('\t');
    cells.push_back(line.substr(0, tab));
    if (tab == std::string_view::npos) return cells;
    line.remove_prefix(tab + 1);
  }
}

/// Names of columns with texts, the first that fit counting: pairs, as GLUE and others name them, then single texts.
constexpr std::pair<std::string_view, std::string_view> kTextColumns[] = {{"text_a", "text_b"},
                                                                          {"sentence1", "sentence2"},
                                                                          {"question1", "question2"},
                                                                          {"premise", "hypothesis"},
                                                                          {"question", "sentence"},
                                                                          {"#1 String", "#2 String"},
                                                                          {"sentence", ""},
                                                                          {"text_a", ""},
                                                                          {"text", ""}};
constexpr std::string_view kLabelColumns[] = {"label", "gold_label", "is_duplicate", "Quality"};

Columns columns_by_title(const ExampleLine& titles) {
  const std::vector<std::string_view> cells = cells_of(titles.text);
  const auto column = [&](std::string_view title) -> std::optional<std::size_t> {
    const auto found = std::find_if(cells.begin(), cells.end(), [&](auto cell) { return stripped(cell) == title; });
    if (found == cells.end()) return std::nullopt;
    return static_cast<std::size_t>(found - cells.begin());
  };
  Columns columns{.count = cells.size(), .a = 0, .b = {}, .label = {}};
  for (const std::string_view title : kLabelColumns) {
    if (!columns.label) columns.label = column(title);
  }
  for (const auto& [a, b] : kTextColumns) {
    const std::optional<std::size_t> first = column(a), second = column(b);
    if (!first || (!b.empty() && !second)) continue;
    columns.a = *first;
    if (!b.empty()) columns.b = second;
    return columns;
  }
  std::vector<std::string> known;
  for (const auto& [a, b] : kTextColumns) known.push_back(fmt::format("{}{}{}", a, b.empty() ? "" : " and ", b));
  titles.refuse(fmt::format("no column of texts; the titles of columns must have {}, and this line is: {}",
                            fmt::join(known, ", or "), printable(titles.text.substr(0, 200))));
}

Columns columns_of(const ExampleLine& titles, const std::string& format) {
  if (format == "tsv") return columns_by_title(titles);
  const std::size_t count = cells_of(titles.text).size();
  if (format == "mnli") {
    if (count == 10) return {.count = count, .a = 8, .b = 9, .label = {}};
    if (count > 10) return {.count = count, .a = 8, .b = 9, .label = count - 1};
    titles.refuse(
        fmt::format("{} tab-separated titles of columns; files of MNLI have 10 (without labels) or more", count));
  }
  if (count == 3) return {.count = count, .a = 1, .b = 2, .label = {}};
  if (count == 6) return {.count = count, .a = 3, .b = 4, .label = 5};
  titles.refuse(fmt::format("{} tab-separated titles of columns; files of QQP have 6, or 3 without labels", count));
}

class TableReader {
 public:
  TableReader(const ExampleForm& form, const TakeExample& take) : form_(form), take_(take) {}

  void read(const ExampleLine& line) {
    if (!columns_) {
      columns_ = columns_of(line, form_.format);
      return;
    }
    const std::vector<std::string_view> cells = cells_of(line.text);
    if (cells.size() != columns_->count) {
      line.refuse(fmt::format("{} tab-separated columns, and the first line has {}", cells.size(), columns_->count));
    }
    const auto text = [&](std::size_t column) {
      const std::string_view cell = stripped(cells[column]);
      return form_.format == "tsv" ? std::string(cell) : clean_text(cell);
    };
    const std::string a = text(columns_->a), b = columns_->b ? text(*columns_->b) : "";
    const std::string_view label = columns_->label ? stripped(cells[*columns_->label]) : "";
    const bool none = !columns_->label || (label.empty() && form_.may_lack_labels);
    take_({.texts = {{a, columns_->b ? std::optional<std::string_view>(b) : std::nullopt}},
           .label = none ? -1 : number_of_label(line, form_, label)});
  }

 private:
  const ExampleForm& form_;
  const TakeExample& take_;
  std::optional<Columns> columns_;
};

/// Says which format a file's first line is of, if that is plainly another one.
void refuse_other_format(const ExampleLine& line, const std::string& format) {
  const bool table = format == "tsv" || format == "mnli" || format == "qqp";
  const bool object = stripped(line.text).starts_with('{'), tabs = line.text.find('\t') != std::string_view::npos;
  if (table ? !object : object || !tabs) return;
  line.refuse(fmt::format(
      "this is {}, and the format is \"{}\"; give task.format = \"{}\" (megatron_eval: --format {})",
      object ? "a JSON object" : "tab-separated columns", format, object ? "json" : "tsv", object ? "json" : "tsv"));
}

}  // namespace

std::string clean_text(std::string_view text) {
  std::string clean;
  bool space = false;
  while (!text.empty()) {
    const std::size_t before = text.size();
    text = without_leading_space(text);
    space = space || text.size() < before;
    if (text.empty()) break;
    if (space) clean += ' ';
    space = false;
    clean += text[0];
    text.remove_prefix(1);
    while (!text.empty() && (static_cast<unsigned char>(text[0]) & 0xC0) == 0x80) {  // the rest of a code point
      clean += text[0];
      text.remove_prefix(1);
    }
  }
  if (space) clean += ' ';
  for (int pass = 0; pass < 3; ++pass) {  // each closes up one of several full stops in a row
    for (std::size_t at = 0; (at = clean.find(" . ", at)) != std::string::npos; at += 2) clean.replace(at, 3, ". ");
  }
  return clean;
}

void read_labelled_examples(const ExampleFile& file, const ExampleForm& form, const TakeExample& take) {
  const TaskInput input{.path = file.path, .text = file.text, .stride = {}, .encode = {}};
  bool any = false;
  const TakeExample counted = [&](const LabelledExample& example) {
    any = true;
    take(example);
  };
  TableReader table(form, counted);
  bool first = true;
  visit_lines(input, [&](const ExampleLine& line) {
    if (std::exchange(first, false)) refuse_other_format(line, form.format);
    if (form.format == "tsv" || form.format == "mnli" || form.format == "qqp") {
      table.read(line);
    } else if (form.format == "race") {
      read_article_questions(line, form, counted);
    } else if (form.labels.empty()) {
      read_question(line, form, counted);
    } else {
      read_pair(line, form, counted);
    }
  });
  verify(any, ErrorKind::data, "{} has no examples", file.path);
}

}  // namespace megatron

// Labelled examples out of files: what each format means, field by field, and what is refused with file and line.
#include "data/finetuning/example_files.h"
#include "data/finetuning/labelled_examples.h"
#include "support/catch.h"
#include "support/require_error.h"
#include "support/temporary_folder.h"

using namespace megatron;
using namespace megatron::test;

namespace {

const ExampleForm kLabels{.format = "json", .labels = {"no", "yes", "7"}};
const ExampleForm kChoices{.format = "json", .labels = {}, .choices = 2};
const ExampleForm kMnli{.format = "mnli", .labels = {"contradiction", "entailment", "neutral"}};
const ExampleForm kQqp{.format = "qqp", .labels = {"0", "1"}};
const ExampleForm kRace{.format = "race", .labels = {}, .choices = 4};

/// "a|b|=label" of each example, its texts with a slash between.
std::vector<std::string> read(const std::string& text, const ExampleForm& form) {
  std::vector<std::string> shown;
  read_labelled_examples({"file", text}, form, [&](const LabelledExample& example) {
    std::string line;
    for (const TextPair& pair : example.texts) {
      line += (line.empty() ? "" : "/") + std::string(pair.a) + (pair.b ? "|" + std::string(*pair.b) : "");
    }
    shown.push_back(line + "=" + std::to_string(example.label));
  });
  return shown;
}

void refused(const std::string& text, const ExampleForm& form, const std::string& part) {
  CAPTURE(text);
  require_error(ErrorKind::data, {part}, [&] { read(text, form); });
}

std::string row(std::vector<std::string> cells) {
  std::string line;
  for (const std::string& cell : cells) line += (line.empty() ? "" : "\t") + cell;
  return line + "\n";
}

std::string mnli_row(const std::string& a, const std::string& b, const std::string& label) {
  return row({"0", "1", "2", "3", "4", "5", "6", "7", a, b, "l", label});
}

using Lines = std::vector<std::string>;

}  // namespace

TEST_CASE("examples: JSON lines have one or two texts and a label or its number") {
  CHECK(read(R"({"text_a": "A\u00e4", "label": "yes"}
{"label": 7, "more": [1, {"x": null}], "text_b": "", "text_a": "C"}

{"text_b": "b", "text_a": "", "label": "no"})",
             kLabels) == Lines{"A\u00e4=1", "C|=2", "|b=0"});
  CHECK(read("{\"context\": \"c\", \"choices\": [\"x\", \"y\"], \"answer\": 1}\n", kChoices) == Lines{"c|x/c|y=1"});
}

TEST_CASE("examples: malformed JSON lines are refused with file and line") {
  refused("", kLabels, "file has no examples");
  refused("\n \n", kLabels, "file has no examples");
  refused("{\"text_a\": \"x\", \"label\": \"no\"}\n{\"text_a\": \"x\"}", kLabels, "file:2: no key \"label\"");
  refused("{\"label\": \"no\"}", kLabels, "file:1: no key \"text_a\"");
  refused("\n{\"text_a\": \"x\", \"label\": \"maybe\"}", kLabels,
          "file:2: the label is \"maybe\", and the labels are \"no\", \"yes\", \"7\"");
  refused("{\"text_a\": \"x\", \"label\": 3}", kLabels, "the label is \"3\"");
  refused("{\"text_a\": \"x\", \"label\": -1}", kLabels, "file:1: byte");
  refused("{\"text_a\": \"x\", \"label\": 1.5}", kLabels, "file:1: byte");
  refused("{\"text_a\": 1, \"label\": \"no\"}", kLabels, "file:1: byte 12");
  refused("{\"text_a\": \"x\", \"text_a\": \"y\", \"label\": \"no\"}", kLabels, "two keys \"text_a\"");
  refused("{\"text_a\": \"x\", \"label\": \"no\"", kLabels, "file:1: byte");
  refused("[\"x\"]", kLabels, "a JSON object");
  refused("{\"text_a\": \"\xFF\", \"label\": \"no\"}", kLabels, "file:1: not valid UTF-8");
  refused("{\"context\": \"c\", \"choices\": [\"x\", \"y\"], \"answer\": 2}", kChoices,
          "file:1: \"answer\" is 2, and there are 2 choices");
  refused("{\"context\": \"c\", \"choices\": [\"x\"], \"answer\": 0}", kChoices, "1 choices, and task.choices = 2");
  refused("{\"context\": \"c\", \"choices\": [\"x\", 3], \"answer\": 0}", kChoices, "file:1: byte");
  refused("{\"choices\": [\"x\", \"y\"], \"answer\": 0}", kChoices, "no key \"context\"");
  refused("{\"context\": \"c\", \"answer\": 0}", kChoices, "no key \"choices\"");
  refused("{\"context\": \"c\", \"choices\": [\"x\", \"y\"]}", kChoices, "no key \"answer\"");
}

TEST_CASE("examples: a label may be absent where the form says so") {
  ExampleForm json = kLabels, choices = kChoices, race = kRace, tsv{.format = "tsv", .labels = {"no", "yes"}};
  for (ExampleForm* form : {&json, &choices, &race, &tsv}) form->may_lack_labels = true;
  CHECK(read("{\"text_a\": \"a\"}\n{\"text_a\": \"b\", \"label\": null}\n{\"text_a\": \"c\", \"label\": \"no\"}",
             json) == Lines{"a=-1", "b=-1", "c=0"});
  CHECK(read("{\"context\": \"c\", \"choices\": [\"x\", \"y\"]}\n", choices) == Lines{"c|x/c|y=-1"});
  CHECK(read(R"({"article": "t", "questions": ["a", "b"], "options": [["1", "2", "3", "4"], ["5", "6", "7", "8"]]})",
             race) == Lines{"a 1|t/a 2|t/a 3|t/a 4|t=-1", "b 5|t/b 6|t/b 7|t/b 8|t=-1"});
  CHECK(read("sentence\tlabel\na\t\nb\t \nc\t1\n", tsv) == Lines{"a=-1", "b=-1", "c=1"});
  refused("{\"text_a\": \"x\", \"label\": \"maybe\"}", json, "file:1: the label is \"maybe\"");
  refused("{\"label\": null}", json, "file:1: no key \"text_a\"");
  refused("{\"text_a\": \"x\", \"label\": null}", kLabels, "file:1: byte");
  refused("{\"text_a\": \"x\"}", kLabels, "no key \"label\"; megatron_eval --predictions predicts");
  refused("sentence\tlabel\nx\t\n", {.format = "tsv", .labels = {"no", "yes"}}, "file:2: the label is \"\"");
}

TEST_CASE("examples: MNLI and QQP are titled columns and test files lack labels") {
  const std::string titles = mnli_row("sentence1", "sentence2", "gold_label");
  CHECK(read(titles + mnli_row("One  man .", " is\u00a0here . now", "neutral") +
                 mnli_row("x\u2003", "y ", " contradiction "),
             kMnli) == Lines{"One man .|is here. now=2", "x|y=0"});
  CHECK(read(row({"0", "1", "2", "3", "4", "5", "6", "7", "s1", "s2"}) +
                 row({"0", "1", "2", "3", "4", "5", "6", "7", "a", "b"}),
             kMnli) == Lines{"a|b=-1"});
  CHECK(read(row({"id", "qid1", "qid2", "question1", "question2", "is_duplicate"}) + "1\t2\t3\tHow?\tWhy? \t1 \r\n",
             kQqp) == Lines{"How?|Why?=1"});
  CHECK(read(row({"id", "question1", "question2"}) + row({"4", "How?", ""}), kQqp) == Lines{"How?|=-1"});
  refused(titles, kMnli, "file has no examples");
  refused(titles + mnli_row("x", "y", "neutral") + "1\t2\n", kMnli, "file:3: 2 tab-separated columns, and the first");
  refused(titles + mnli_row("x", "y", "-"), kMnli, "file:2: the label is \"-\"");
  refused(row({"a", "b"}), kMnli, "file:1: 2 tab-separated titles");
  refused(row({"a", "b", "c", "d"}), kQqp, "file:1: 4 tab-separated titles");
  refused(row({"id", "qid1", "qid2", "question1", "question2", "is_duplicate"}) + row({"1", "2", "3", "x", "y", "2"}),
          kQqp, "the label is \"2\", and the labels are \"0\", \"1\"");
}

TEST_CASE("examples: columns of a TSV file are found by their titles") {
  const ExampleForm form{.format = "tsv", .labels = {"0", "1"}};
  CHECK(read("sentence\tlabel\nit 's a  charming .\t1\r\n hollow\t 0\n", form) ==
        Lines{"it 's a  charming .=1", "hollow=0"});  // SST-2
  CHECK(read("index\tsentence1\tsentence2\tlabel\n0\ta\tb\t1\n", form) == Lines{"a|b=1"});
  CHECK(read("index\tquestion\tsentence\tlabel\n0\ta\tb\t1\n", form) == Lines{"a|b=1"});                // QNLI
  CHECK(read("Quality\t#1 ID\t#2 ID\t#1 String\t#2 String\n1\t7\t8\ta\tb\n", form) == Lines{"a|b=1"});  // MRPC
  CHECK(read("text\tid\nx\t9\n", form) == Lines{"x=-1"});
  CHECK(read("label\ttext_b\ttext_a\n1\tb\ta\n", form) == Lines{"a|b=1"});
  refused("words\tlabel\nx\t1\n", form,
          "file:1: no column of texts; the titles of columns must have text_a and text_b");
  refused("sentence\tlabel\nx\t2\n", form, "file:2: the label is \"2\"");
  refused("sentence\tlabel\nx\n", form, "file:2: 1 tab-separated columns, and the first line has 2");
  refused("sentence\tlabel\n", form, "file has no examples");
}

TEST_CASE("examples: a label may be the number of its name") {
  ExampleForm form{.format = "tsv", .labels = {"negative", "positive"}};
  CHECK(read("sentence\tlabel\na\t1\nb\t0\nc\tpositive\n", form) == Lines{"a=1", "b=0", "c=1"});  // SST-2
  refused("sentence\tlabel\nx\t2\n", form,
          "file:2: the label is \"2\", and the labels are \"negative\", \"positive\", or their numbers, 0 to 1");
  for (const char* label : {"01", "1x", "+1", "-1", "18446744073709551617"}) {
    refused(fmt::format("sentence\tlabel\nx\t{}\n", label), form, fmt::format("the label is \"{}\"", label));
  }
  form.format = "json";
  CHECK(read("{\"text_a\": \"a\", \"label\": 1}\n{\"text_a\": \"b\", \"label\": \"0\"}\n", form) ==
        Lines{"a=1", "b=0"});
  // Labels that are numbers are no others' numbers, and MNLI's are numbered in another order elsewhere.
  form.labels = {"1", "2"};
  CHECK(read("{\"text_a\": \"a\", \"label\": 1}\n", form) == Lines{"a=0"});
  refused("{\"text_a\": \"a\", \"label\": 0}\n", form, "the label is \"0\", and the labels are \"1\", \"2\"");
  refused(mnli_row("sentence1", "sentence2", "gold_label") + mnli_row("x", "y", "0"), kMnli, "the label is \"0\"");
}

TEST_CASE("examples: a file of another format names the one to give") {
  const ExampleForm form{.format = "tsv", .labels = {"0", "1"}};
  refused("{\"text_a\": \"x\", \"label\": 0}\n", form,
          "file:1: this is a JSON object, and the format is \"tsv\"; give "
          "task.format = \"json\" (megatron_eval: --format json)");
  refused("{\"text_a\": \"x\", \"label\": 0}\n", kMnli, "this is a JSON object, and the format is \"mnli\"");
  refused("sentence\tlabel\nx\t1\n", kLabels,
          "this is tab-separated columns, and the format is \"json\"; give "
          "task.format = \"tsv\"");
}

TEST_CASE("examples: RACE's options fill the gap of a question, or follow it") {
  CHECK(read(R"({"article": "It\nwas  so . Yes", "questions": ["He _ home.", "Why?"], "id": "x", "options": )"
             R"([["a", "b", "c", "d"], ["e", "f", "g", " . "]], "answers": ["B", "D"]})",
             kRace) ==
        Lines{"He a home.|It was so. Yes/He b home.|It was so. Yes/He c home.|It was so. Yes/"
              "He d home.|It was so. Yes=1",
              "Why? e|It was so. Yes/Why? f|It was so. Yes/Why? g|It was so. Yes/Why?. |It was so. Yes=3"});
}

TEST_CASE("examples: RACE's articles, refused where they are not whole") {
  const auto article = [](const std::string& questions, const std::string& options, const std::string& answers) {
    return "{\"article\": \"x\", \"questions\": " + questions + ", \"options\": " + options +
           ", \"answers\": " + answers + "}\n";
  };
  const std::string four = R"([["a", "b", "c", "d"]])";
  CHECK(read(article(R"(["q_"])", four, R"(["C"])"), kRace) == Lines{"qa|x/qb|x/qc|x/qd|x=2"});
  refused(article(R"(["q"])", four, R"(["E"])"), kRace,
          "file:1: the answer of question 1 is \"E\", and its options are A to D");
  refused(article(R"(["q"])", four, R"(["AB"])"), kRace, "is \"AB\"");
  refused(article(R"(["q"])", R"([["a", "b"]])", R"(["A"])"), kRace, "question 1 has 2 options");
  refused(article(R"(["q", "r"])", four, R"(["A"])"), kRace, "2 questions with 1 lists of options and 1 answers");
  refused(article("[]", "[]", "[]"), kRace, "file has no examples");
  refused("{\"questions\": [], \"options\": [], \"answers\": []}", kRace, "no key \"article\"");
}

TEST_CASE("examples: text is cleaned as Megatron's tasks clean it") {
  CHECK(clean_text("a\n\n b\t c") == "a b c");
  CHECK(clean_text("a . b . . . . c .") == "a. b. ... c .");
  CHECK(clean_text(" a ") == " a ");
  CHECK(clean_text("") == "");
  CHECK(clean_text("\u3000\u00e9\u2003") == " \u00e9 ");
}

TEST_CASE("examples: files are found in folders by ending in order of names") {
  const TemporaryFolder folder;
  std::filesystem::create_directories(folder.file("high"));
  write_file(folder.file("high/2.txt"), "two");
  write_file(folder.file("1.txt"), "one");
  write_file(folder.file("notes.md"), "none");
  CHECK(example_files(folder.path(), ".txt") == Lines{folder.file("1.txt"), folder.file("high/2.txt")});
  CHECK(example_files(folder.file("1.txt"), ".json") == Lines{folder.file("1.txt")});
  CHECK(read_example_file(folder.file("high/2.txt")) == "two");
  require_error(ErrorKind::data, {"has no files that end with .json"}, [&] { example_files(folder.path(), ".json"); });
  require_error(ErrorKind::data, {"absent"}, [&] { read_example_file(folder.file("absent")); });
}

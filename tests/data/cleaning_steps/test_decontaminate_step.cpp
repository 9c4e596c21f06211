// The step decontaminate on whole corpora: planted n-grams of task files go, on any number of ranks.
#include "data/cleaning/cleaning_support.h"
#include "data/cleaning_steps/clean_support.h"

using namespace megatron;
using namespace megatron::test;

namespace {

/// Sentences of ten words that nothing else has.
std::string sentences(Numbers& numbers, int count) {
  std::string text;
  for (int i = 0; i < count; ++i) text += joined(made_up_words(numbers, 10)) + ". ";
  return text;
}

/// Task files of several forms, and a corpus in which 12 of 60 documents have one of their texts.
struct Contaminated {
  std::vector<std::string> documents, cut;  ///< and what is to be left
  std::string tasks, common;
  std::size_t contaminated = 0;
};

Contaminated write_contaminated(const ShardFolder& folder) {
  Numbers numbers(9);
  std::vector<std::string> texts;
  for (int i = 0; i < 4; ++i) texts.push_back(joined(made_up_words(numbers, 20)));
  Contaminated made;
  made.common = joined(made_up_words(numbers, 13));
  write_file(folder.file("lambada.jsonl"),
             nlohmann::json{{"text", texts[0]}}.dump() + "\n" + nlohmann::json{{"text", made.common}}.dump() + "\n");
  write_file(folder.file("questions.jsonl"),
             nlohmann::json{{"question", {{"stem", texts[1]}, {"choices", {"x"}}}}}.dump() + "\n");
  std::filesystem::create_directories(folder.file("race"));
  write_file(folder.file("race/1.txt"),
             nlohmann::json{{"article", texts[2]}, {"questions", {"short?", texts[3]}}}.dump() + "\n");
  made.tasks = folder.file("lambada.jsonl") + "," + folder.file("questions.jsonl") + "," + folder.file("race");
  std::string lines;
  for (std::size_t i = 0; i < 60; ++i) {
    const std::string before = sentences(numbers, 6), after = sentences(numbers, 6);
    const bool planted = i % 5 == 2;
    std::string middle = planted ? texts[i % 4] : i % 3 == 0 ? made.common : joined(made_up_words(numbers, 20));
    made.documents.push_back(before + middle + ". " + after);
    made.contaminated += planted ? 1 : 0;
    lines += nlohmann::json{{"id", i}, {"text", made.documents.back()}}.dump() + "\n";
  }
  write_file(folder.file("a.jsonl"), lines);
  return made;
}

}  // namespace

TEST_CASE("decontaminate: planted texts of tasks are cut out", "[clean][decontaminate]") {
  const ShardFolder folder;
  const Contaminated made = write_contaminated(folder);
  play(job_of(folder, "decontaminate", {"a.jsonl"}, {{"tasks", made.tasks}}), 3);
  std::size_t at = 0;
  const std::vector<std::string> texts = texts_of(documents(folder));
  for (std::size_t i = 0; i < made.documents.size(); ++i) {
    if (i % 5 != 2) {
      REQUIRE(at < texts.size());
      CHECK(texts[at++] == made.documents[i]);
      continue;
    }
    REQUIRE(at + 1 < texts.size());  // a part before, and one behind
    CHECK(made.documents[i].starts_with(texts[at]));
    CHECK(texts[at].size() > 200);
    CHECK(made.documents[i].ends_with(texts[at + 1]));
    CHECK(texts[at].size() + texts[at + 1].size() + 500 < made.documents[i].size());
    at += 2;
  }
  CHECK(at == texts.size());
  const nlohmann::json found = report(folder);
  CHECK(found["documents"]["read"] == 60);
  CHECK(found["documents"]["kept"] == 60 + made.contaminated);
  CHECK(found["changed"]["cut"]["documents"] == made.contaminated);
  CHECK(found["decontamination"]["ngrams"] == 4 * 8 + 1);
  CHECK(found["decontamination"]["common_ngrams"] == 1);
  const std::string example = found["changed"]["cut"]["examples"][0]["text"];  // the words that were found
  CHECK(made.documents[2].find(example.substr(0, 100)) != std::string::npos);
}

TEST_CASE("decontaminate: documents are dropped, common phrases by key", "[clean][decontaminate]") {
  const ShardFolder folder;
  const Contaminated made = write_contaminated(folder);
  const KeyValues drop = {{"tasks", made.tasks}, {"action", "drop"}, {"common", "1000"}};
  play(job_of(folder, "decontaminate", {"a.jsonl"}, drop), 2);
  std::size_t clean = 0;
  for (std::size_t i = 0; i < 60; ++i) clean += i % 5 != 2 && i % 3 != 0 ? 1 : 0;
  CHECK(report(folder)["documents"]["kept"] == clean);
  CHECK(report(folder)["removed"]["contaminated"]["documents"] == 60 - clean);
}

TEST_CASE("decontaminate: the same bytes on 1, 2, 3 and 8 ranks", "[clean][decontaminate][fault-140]") {
  const ShardFolder folder;
  const Contaminated made = write_contaminated(folder);
  const std::string search = GENERATE(as<std::string>(), "full", "megatron");
  require_same_everywhere(folder,
                          job_of(folder, "decontaminate", {"a.jsonl"}, {{"tasks", made.tasks}, {"search", search}}));
}

TEST_CASE("decontaminate: another task file, another result", "[clean][decontaminate]") {
  const ShardFolder folder;
  const Contaminated made = write_contaminated(folder);
  const StepJob job = job_of(folder, "decontaminate", {"a.jsonl"}, {{"tasks", made.tasks}});
  const std::string identity = identity_of(job);
  CHECK(identity_of(job) == identity);
  write_file(folder.file("race/2.txt"), "{\"article\": \"another\"}\n");
  CHECK(identity_of(job) != identity);
}

TEST_CASE("decontaminate: values that cannot be are refused", "[clean][decontaminate]") {
  const ShardFolder folder;
  write_file(folder.file("a.jsonl"), json_line("x"));
  write_file(folder.file("task.jsonl"), "{\"text\": \"too short\"}\n");
  write_file(folder.file("bad.jsonl"), "{\"text\": \"x\"}\n{\"text\": \n");
  const auto refused = [&](ErrorKind kind, const KeyValues& keys, const std::vector<std::string>& parts) {
    require_clean_error(folder, kind, parts, [&] { play(job_of(folder, "decontaminate", {"a.jsonl"}, keys), 2); });
  };
  const std::string task = folder.file("task.jsonl");
  refused(ErrorKind::configuration, {}, {"give the tasks"});
  refused(ErrorKind::configuration, {{"tasks", task}}, {"task.jsonl", "8 words", "fields"});
  refused(ErrorKind::configuration, {{"tasks", task}, {"action", "x"}}, {"cut drop"});
  refused(ErrorKind::configuration, {{"tasks", task}, {"search", "x"}}, {"full megatron"});
  refused(ErrorKind::configuration, {{"tasks", task}, {"shortest_ngram", "14"}}, {"14"});
  refused(ErrorKind::configuration, {{"tasks", task}, {"common", "0"}}, {"common 0"});
  refused(ErrorKind::data, {{"tasks", folder.file("bad.jsonl")}}, {"bad.jsonl:2"});
  refused(ErrorKind::data, {{"tasks", folder.file("absent")}}, {"absent"});
}

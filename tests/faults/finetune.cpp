#include "faults/finetune.h"

#include "faults/checks.h"
#include "support/needs_icu.h"

const char* const kFineTunedModel = R"([model]
family = "bert"
layers = 2
hidden_size = 32
attention_heads = 4
sequence_length = 64
hidden_dropout = 0.05
attention_dropout = 0.05

[train]
micro_batch_size = 2
global_batch_size = 8

[learning_rate]
peak = 3e-3
decay = "constant"

[checkpoint]
keep_last = 0
)";

Fixture::Fixture() {
  needs_icu();
  write_file(folder.file("input.toml"), kFineTunedModel);
  pretrain("pretrained", "300");
  write_file(folder.file("train.jsonl"), pairs(0, 61));
  write_file(folder.file("validation.jsonl"), pairs(100, 21));
  write_file(folder.file("questions.jsonl"), questions(0, 61));
  write_file(folder.file("more.jsonl"), questions(100, 21));
}

std::string Fixture::pretrain(const std::string& name, const char* vocabulary_size, const Command& more) const {
  const std::string corpus = (shared_folder() / "corpus.jsonl").string(), words = folder.file(name + "_words");
  done({preprocess_program(), "train-tokenizer", "--type", "wordpiece", "--input", corpus, "--output", words,
        "--vocab-size", vocabulary_size});
  Command shards = {
      preprocess_program(), "--input",      corpus,         "--output",           folder.file(name + "_shards"),
      "--tokenizer",        "bert-uncased", "--vocab-file", words + "/vocab.txt", "--no-append-eod",
      "--split-sentences"};
  shards.insert(shards.end(), more.begin(), more.end());
  done(shards);
  done(run({"train.steps=2", "data.train=" + folder.file(name + "_shards"), "data.split=95,5"}, kOneRank,
           folder.file(name)));
  return folder.file(name);
}

std::string Fixture::filler(int i) {
  const char* const words[] = {"the old man", "a small dog", "they all", "his mother", "one day she", "our friend"};
  const char* const rest[] = {"went home", "was very happy", "sat on the bed", "looked at the sky", "made a cake"};
  return std::string(words[i % 6]) + " " + rest[i / 6 % 5];
}

std::string Fixture::pairs(int first, int count) {
  std::string lines;
  for (int i = first; i < first + count; ++i) {
    const bool rain = (i * 7 + i / 5) % 2 == 0;
    nlohmann::json line = {{"text_a", filler(i)}, {"label", rain ? "rain" : "snow"}};
    const std::string word = rain ? " in the garden" : " with a friend";
    if (i % 2 == 0) {
      line["text_b"] = filler(i + 3) + word;
    } else {
      line["text_a"] = filler(i) + word;
    }
    lines += line.dump() + "\n";
  }
  return lines;
}

std::string Fixture::questions(int first, int count) {
  std::string lines;
  for (int i = first; i < first + count; ++i) {
    const int answer = (i * 5 + i / 3) % 3;
    std::vector<std::string> choices(3, filler(i + 1) + " with a friend");
    choices[static_cast<std::size_t>(answer)] = filler(i + 2) + " in the garden";
    lines += nlohmann::json{{"context", filler(i)}, {"choices", choices}, {"answer", answer}}.dump() + "\n";
  }
  return lines;
}

Command Fixture::run(const Settings& settings, const Layout& layout, const std::string& directory) const {
  return training(layout, directory, settings, folder.file("input.toml"));
}

Settings Fixture::classification(const Settings& more) const {
  return with(
      more, {"task.name=classification", "task.labels=[\"snow\", \"rain\"]", "checkpoint.initialize_from=" + pretrained,
             "data.train=" + file("train.jsonl"), "data.validation=" + file("validation.jsonl"), "train.epochs=6"});
}

Settings Fixture::multiple_choice(const Settings& more) const {
  return with(more, {"task.name=multiple_choice", "task.choices=3", "checkpoint.initialize_from=" + pretrained,
                     "data.train=" + file("questions.jsonl"), "data.validation=" + file("more.jsonl"), "train.epochs=6",
                     "train.evaluate_every=epoch"});
}

Settings Fixture::with(const Settings& last, Settings settings) {
  settings.insert(settings.end(), last.begin(), last.end());
  return settings;
}

const Fixture& fixture() {
  static const Fixture made;
  return made;
}

std::vector<nlohmann::json> evaluations(const std::string& directory) {
  std::vector<nlohmann::json> all;
  for (const std::string& line : numbers(directory, "eval")) all.push_back(nlohmann::json::parse(line));
  return all;
}

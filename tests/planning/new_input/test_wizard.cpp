// Questions and answers in this process: what is asked, refused and written. The program:
// tests/faults/test_new_input.cpp.
#include "planning/new_input/wizard.h"

#include <cstdlib>
#include <deque>
#include <filesystem>
#include <functional>
#include <map>
#include <sstream>
#include <string>
#include <vector>

#include "base/core/error.h"
#include "config/parse/parse.h"
#include "config/rules/rules.h"
#include "support/catch.h"
#include "support/process.h"
#include "support/temporary_folder.h"

using namespace megatron;

namespace {

/// With single spaces: lines are wrapped.
std::string in_one_line(const std::string& text) {
  std::istringstream words(text);
  std::string line;
  for (std::string word; words >> word;) line += (line.empty() ? "" : " ") + word;
  return line;
}

/// Answers to a question by its name, one after the other, and then defaults. Whatever is refused must have been one
/// of the answers.
class ScriptedUser {
 public:
  std::map<std::string, std::deque<std::string>> answers;
  std::string heard;                   ///< since the beginning
  std::vector<std::string> questions;  ///< their names, in order
  std::map<std::string, std::string> defaults;
  bool takes_defaults = true;  ///< after the last one of `answers`; else the answers end there

  Output output() {
    return {.print = [this](const std::string& text) { heard += text; }};
  }

  LineReader::Outcome operator()(std::string& line) {
    using Outcome = LineReader::Outcome;
    // "Transformer layers (model.layers: integer) [4]"
    const std::string all = in_one_line(heard);
    const std::size_t end = all.rfind(") ["), begin = all.rfind('(', end);
    const std::string name = all.substr(begin + 1, all.find(':', begin) - begin - 1);
    std::deque<std::string>& typed = answers[name];
    if (typed.empty() && heard.find("error: ", answered_) != std::string::npos) FAIL(heard.substr(answered_));
    answered_ = heard.size();
    if (questions.empty() || questions.back() != name) questions.push_back(name);
    defaults[name] = all.substr(end + 3, all.find(']', end) - end - 3);
    line.clear();
    if (typed.empty()) return takes_defaults ? Outcome::line : Outcome::end;
    line = typed.front();
    typed.pop_front();
    return line == "^C" ? Outcome::interrupted : Outcome::line;
  }

 private:
  std::size_t answered_ = 0;
};

/// The file that these answers make.
Config made(ScriptedUser& user, std::string* text = nullptr) {
  const TemporaryFolder folder;
  const std::string path = folder.file("books.toml");
  const NewInput result = make_input_file(path, std::ref(user), user.output());
  INFO(user.heard);
  REQUIRE(result.exit_code == 0);
  REQUIRE(result.report.find("next ") != std::string::npos);
  if (text != nullptr) *text = contents_of(path);
  return parse_config(path);
}

Config made_of(const std::map<std::string, std::string>& answers) {
  ScriptedUser user;
  for (const auto& [name, answer] : answers) user.answers[name] = {answer};
  return made(user);
}

}  // namespace

TEST_CASE("new file: defaults give each family a valid file on any rank count") {
  const std::string family = GENERATE("gpt", "bert", "t5");
  for (const int ranks : {1, 2, 3, 4, 6, 7, 8, 12, 17, 64, 1000}) {
    CAPTURE(family, ranks);
    const Config config = made_of({{"model.family", family}, {"ranks", std::to_string(ranks)}});
    CHECK(config.model.family == family);
    CHECK(check_with_ranks(config, ranks).empty());
    CHECK(config.train.global_batch_size % ranks == 0);
    CHECK(config.parallel.tensor * config.parallel.pipeline == 1);
  }
}

TEST_CASE("new file: a batch too small for all ranks leads to shared layers") {
  const std::string family = GENERATE("gpt", "bert", "t5");
  struct Row {
    int ranks, batch, tensor, pipeline;
  };
  // Batches of 2 samples on 8 ranks leave at least 4 ranks for each replica.
  for (const Row& row : {Row{8, 2, 4, 1}, Row{8, 1, 4, 2}, Row{4, 30, 2, 1}, Row{2, 1, 2, 1}}) {
    CAPTURE(family, row.ranks, row.batch);
    const Config config = made_of({{"model.family", family},
                                   {"model.hidden_size", "256"},
                                   {"ranks", std::to_string(row.ranks)},
                                   {"train.global_batch_size", std::to_string(row.batch)}});
    CHECK(config.parallel.tensor == row.tensor);
    CHECK(config.parallel.pipeline == row.pipeline);
    CHECK(config.parallel.sequence_parallel);
    CHECK(check_with_ranks(config, row.ranks).empty());
  }
}

TEST_CASE("new file: wrong answers are refused in the schema's words and retried") {
  ScriptedUser user;
  user.answers = {{"model.family", {"gtp", "gpt"}},          {"model.layers", {"0", "four", "6"}},
                  {"model.attention_heads", {"3", "4"}},     {"ranks", {"none", "0", "8"}},
                  {"train.global_batch_size", {"12"}},       {"length", {"hours", "tokens"}},
                  {"learning_rate.peak", {"1e-50", "2e-3"}}, {"learning_rate.minimum", {"3e-3", "2e-4"}},
                  {"parallel.tensor", {"3", "16", "2"}},     {"parallel.pipeline", {"4", "2"}},
                  {"optimizer.share", {"perhaps", "state"}}};
  const Config config = made(user);
  const std::string heard = in_one_line(user.heard);
  for (const char* message :
       {"error: model.family = \"gtp\" is not one of \"gpt\", \"bert\", \"t5\"; did you mean \"gpt\"?",
        "error: model.layers = 0 is out of range: at least 1, at most 2^16",
        "error: model.layers: expected integer, got string \"four\"",
        "error: model.hidden_size = 128 is not divisible by model.attention_heads = 3; possible heads: 1, 2, 4, 8,",
        "error: ranks = none is not a whole number from 1 to 1048576", "error: ranks = 0 is not",
        "error: \"hours\" is not one of steps, samples, tokens, epochs",
        "error: learning_rate.peak = 1e-50 is 0 in fp32",
        "error: learning_rate.minimum = 0.003 is above learning_rate.peak = 0.002",
        "error: model.attention_heads = 4 is not divisible by parallel.tensor = 3; possible: 1, 2, 4",
        "error: model.attention_heads = 4 is not divisible by parallel.tensor = 16",
        "error: model.layers = 6 is not divisible by parallel.pipeline = 4; possible: 1, 2, 3, 6",
        "error: optimizer.share = \"perhaps\" is not one of \"none\", \"state\", \"gradients\""}) {
    CAPTURE(message);
    CHECK(heard.find(message) != std::string::npos);
  }
  CHECK(config.model.layers == 6);
  CHECK(config.train.tokens == 1000 * 12 * 128);
  CHECK(config.parallel.tensor == 2);
  CHECK(config.parallel.pipeline == 2);
  CHECK(config.optimizer.shares().state);
}

TEST_CASE("new file: a batch or layout that cannot be divided is refused at once") {
  ScriptedUser user;
  // 7 ranks can only be 7 replicas: neither 4 heads nor 4 layers are cut by 7.
  user.answers = {{"ranks", {"7"}}, {"train.global_batch_size", {"30", "28"}}};
  CHECK(made(user).train.global_batch_size == 28);
  CHECK(in_one_line(user.heard).find("30 is not a multiple of micro_batch_size 1 × data 7 = 7; nearest: 28, 35") !=
        std::string::npos);
  ScriptedUser other;
  // 30 samples: 8 replicas cannot share them, 2 can; so a layer is shared by 4 ranks, or stages are.
  other.answers = {{"ranks", {"8"}},
                   {"train.global_batch_size", {"30"}},
                   {"parallel.tensor", {"1"}},
                   {"parallel.pipeline", {"1", "4"}}};
  const Config config = made(other);
  CHECK(config.parallel.pipeline == 4);
  CHECK(in_one_line(other.heard).find("30 is not a multiple of micro_batch_size 1 × data 8 = 8") != std::string::npos);
}

TEST_CASE("new file: ? explains and < goes back and forgets what was answered") {
  ScriptedUser user;
  user.answers = {{"model.family", {"", "bert"}},
                  {"model.preset", {"?", "bert-base", "gpt2-345m", "<", ""}},
                  {"model.sequence_length", {"4096", "<"}},
                  {"train.global_batch_size", {"?"}}};
  const Config config = made(user);
  const std::string heard = in_one_line(user.heard);
  CHECK(heard.find("gpt2-345m the same") != std::string::npos);
  CHECK(heard.find("\"bert-base\" is of model.family = \"bert\", not \"gpt\"") != std::string::npos);
  CHECK(heard.find("model.max_position_embeddings = 1024 (preset \"gpt2-345m\" gives a default) is smaller") !=
        std::string::npos);
  CHECK(heard.find("Samples per update, over all ranks. integer, in samples; at least 1, at most 2^30; a multiple of "
                   "micro_batch_size · data. Required.") != std::string::npos);
  CHECK(config.model.family == "bert");
  CHECK(config.model.preset.empty());
  CHECK(config.model.layers == 4);
  CHECK(config.model.sequence_length == 128);
}

TEST_CASE("new file: nothing is written at an early end or over what is there") {
  const TemporaryFolder folder;
  const std::string path = folder.file("books.toml");
  const auto files = [&] { return folder.files().size(); };
  ScriptedUser hasty;
  hasty.takes_defaults = false;
  hasty.answers = {{"model.family", {""}}, {"model.preset", {""}}, {"model.layers", {"4"}}};
  try {
    make_input_file(path, std::ref(hasty), hasty.output());
    FAIL("the file was made without answers");
  } catch (const Error& error) {
    CHECK(error.exit_code() == 2);
    CHECK(std::string(error.what()).find("the answers end at the question model.hidden_size") != std::string::npos);
  }
  ScriptedUser interrupting;
  interrupting.answers = {{"run.directory", {"^C"}}};
  CHECK(make_input_file(path, std::ref(interrupting), interrupting.output()).exit_code == 130);
  CHECK(files() == 0);

  write_file(path, "mine");
  std::filesystem::create_symlink("nowhere", folder.file("link.toml"));
  for (const std::string& name : {path, folder.file("link.toml")}) {
    ScriptedUser user;
    try {
      make_input_file(name, std::ref(user), user.output());
      FAIL("the file was written over");
    } catch (const Error& error) {
      CHECK(error.exit_code() == 2);
      CHECK(std::string(error.what()).find("exists already and is never overwritten") != std::string::npos);
    }
    CHECK(user.heard.empty());
  }
  CHECK(contents_of(path) == "mine");
  CHECK(files() == 1);
  ScriptedUser user;
  CHECK_THROWS_WITH(make_input_file(folder.file("no/books.toml"), std::ref(user), user.output()),
                    Contains("there is no folder"));
}

TEST_CASE("new file: it says what each key is, and keeps variables of paths") {
  ::setenv("WIZARD_TEST", "/data/of/this/machine", 1);
  ScriptedUser user;
  user.answers = {{"data.train", {"${WIZARD_TEST}/books"}},
                  {"run.directory", {"\"${WIZARD_TEST}/run\""}},
                  {"ranks", {"2"}},
                  {"learning_rate.decay", {"wsd"}}};
  const TemporaryFolder here;
  const std::filesystem::path before = std::filesystem::current_path();
  std::filesystem::current_path(here.path());
  std::string text;
  const Config config = made(user, &text);
  std::filesystem::create_directory("scripts");
  write_file("scripts/launch.sh", "");  // as in the folder of the sources
  std::string in_sources;
  ScriptedUser again;
  again.answers = {{"ranks", {"2"}}};
  made(again, &in_sources);
  std::filesystem::current_path(before);
  CAPTURE(text);
  CHECK(in_sources.find("# Train:  scripts/launch.sh 2 ./megatron_train /") != std::string::npos);
  CHECK(in_sources.find("# Plan:   ./megatron_train /") != std::string::npos);
  CHECK(config.data.train == Blend("/data/of/this/machine/books"));
  for (const char* part :
       {"\ntrain = \"${WIZARD_TEST}/books\"\n", "\ndirectory = \"${WIZARD_TEST}/run\"\n",
        "\n# Transformer layers (integer)\nlayers = 4\n", "# Train:  megatron_launch 2 megatron_train /",
        "\n# Samples per update, over all ranks (integer, in samples)\nglobal_batch_size = 16\n",
        "\nwsd_decay_steps = 100\n", "\n[checkpoint]\n"}) {
    CAPTURE(part);
    CHECK(text.find(part) != std::string::npos);
  }
  CHECK(text.find("preset") == std::string::npos);
  ::unsetenv("WIZARD_TEST");
}

TEST_CASE("new file: questions that have one answer are left out") {
  ScriptedUser user;
  made(user);
  const auto asked = [&](const char* name) {
    return std::find(user.questions.begin(), user.questions.end(), name) != user.questions.end();
  };
  for (const char* name : {"parallel.tensor", "parallel.pipeline", "parallel.schedule", "optimizer.share",
                           "model.decoder_layers", "hardware", "learning_rate.wsd_decay_steps", "train.tokens"}) {
    CAPTURE(name);
    CHECK_FALSE(asked(name));
  }
  for (const char* name : {"model.vocab_size", "train.micro_batch_size", "train.steps", "learning_rate.minimum"}) {
    CAPTURE(name);
    CHECK(asked(name));
  }
  CHECK(user.defaults["model.vocab_size"] == "the data's");
  CHECK(user.defaults["data.train"] == "data/books");
  CHECK(user.defaults["run.directory"] == "runs/books");
}

// Command lines as people type them: each mistake is answered with the word that is wrong and what to type instead.
#include <nlohmann/json.hpp>
#include <regex>
#include <sstream>

#include "faults/runs.h"
#include "support/catch.h"
#include "support/temporary_folder.h"

namespace fs = std::filesystem;
using nlohmann::json;

namespace {

void refused(const Command& command, const std::vector<std::string>& parts, int code = 2) {
  const Finished finished = run_command(command, 30);
  INFO(finished.out << finished.err);
  CHECK(finished.code == code);
  for (const std::string& part : parts) {
    CAPTURE(part);
    CHECK(mentions(finished.err, part));
  }
}

std::string answer(const Command& command) {
  const Finished finished = run_command(command, 30);
  INFO(finished.out << finished.err);
  REQUIRE(finished.code == 0);
  return finished.out;
}

}  // namespace

TEST_CASE("keys without --set: the error types it out") {
  const std::string program = train_program(), input = input_file();
  refused({program, input, "train.steps=3"}, {"'train.steps=3'", "type --set train.steps=3"});
  refused({program, "train.steps=3", input}, {"type --set train.steps=3"});
  refused({program, input, "lr=3"}, {"type --set lr=3"});
  refused({program, input, "--train.steps=3"}, {"unknown option --train.steps=3", "type --set train.steps=3"});
  refused({program, input, "--train.steps", "3"}, {"unknown option --train.steps;", "type --set train.steps=3"});
  refused({program, input, "--num-layers", "24"},
          {"unknown option --num-layers of Megatron-LM: write model.layers in the input file", "--set model.layers=24",
           "docs/from_megatron.md"});
  refused({program, input, "--lr=1e-4", "--hidden-size", "512", "--swiglu"},  // all of a command at once
          {"--lr of Megatron-LM", "--set learning_rate.peak=1e-4", "--set model.hidden_size=512", "(swiglu)"});
  refused({program, input, "--dry-rum", "--bf16"}, {"(bf16)", "unknown option --dry-rum"});
  refused({program, input, "--bf16"}, {"--set precision.compute=VALUE (bf16)"});
  refused({program, input, "--master_port", "6000"},
          {"unknown option --master_port of Megatron-LM: no key here; MPI finds the ranks"});
  refused({program, input, "--set", "train.steps", "3"},
          {"--set train.steps 3: key and value are one word", "type --set train.steps=3"});
  refused({program, input, "--set", "learning_rate=3"},
          {"'learning_rate' is a table, and its keys are peak,", "set one as learning_rate.KEY=VALUE"});
}

TEST_CASE("paths with ~ and variables: in options, keys and input files") {
  const TemporaryFolder home;
  fs::create_directory(home.file("here"));
  const std::string corpus = (shared_folder() / "corpus.jsonl").string();
  const Command at_home = {"env", "-C", home.file("here"), "HOME=" + home.path(), "BOOKS=" + home.file("here")};
  const auto run = [&](std::initializer_list<std::string> words, int code = 0) {
    Command command = at_home;
    command.insert(command.end(), words.begin(), words.end());
    const Finished finished = run_command(command, 60);
    INFO(finished.out << finished.err);
    CHECK(finished.code == code);
    return finished.out + finished.err;
  };
  run({preprocess_program(), "--input", corpus, "--output=~/books"});
  run({preprocess_program(), "--input", corpus, "--output", "$BOOKS/more"});
  CHECK(fs::exists(home.file("books-00000.h5")));
  CHECK(fs::exists(home.file("here/more-00000.h5")));
  const std::string keys = run({train_program(), input_file(), "--set", "data.train=~/books", "--set",
                                "run.directory=$HOME/runs/a", "--print-config"});
  CHECK(mentions(keys, "\"" + home.path() + "/books\""));
  CHECK(mentions(keys, "\"" + home.path() + "/runs/a\""));
  CHECK(
      mentions(run({preprocess_program(), "--input", corpus, "--output", "~someone/x"}, 2), "'~someone/x': ~ stands"));
  CHECK(mentions(run({preprocess_program(), "--input", corpus, "--output", "$NO_SUCH/x"}, 2), "'NO_SUCH' is not set"));
  for (const Command& named :
       {Command{checkpoint_program(), "info", "$NO_SUCH/x"}, Command{preprocess_program(), "verify", "$NO_SUCH/x"},
        Command{train_program(), "$NO_SUCH/x.toml", "--print-config"},
        Command{train_program(), "--watch", "$NO_SUCH/x"},
        Command{generate_program(), "$NO_SUCH/x", "--prompt", "a"}}) {
    refused(named, {"'NO_SUCH' is not set"});
  }
  CHECK_FALSE(fs::exists(home.file("here/~")));
}

TEST_CASE("words that belong to no option are named") {
  refused({train_program(), input_file(), "8"}, {"'8' belongs to no option", "scripts/launch.sh 8"});
  refused({train_program(), input_file(), "more"}, {"'more' belongs to no option; there is one input file"});
  refused({generate_program(), "runs/t", "a b"}, {"'a b' belongs to no option; a prompt is given as --prompt \"a b\""});
  refused({preprocess_program(), "train-tokenize", "--input", "x"},
          {"'train-tokenize' belongs to no option; did you mean the command 'train-tokenizer'?"});
  refused({preprocess_program(), "books.jsonl", "--output", "x"}, {"text is given as --input books.jsonl"});
  refused({checkpoint_program(), "diff", "a", "b", "c"}, {"'c' belongs to no option"});
}

TEST_CASE("--help of a checkpoint command is about that command") {
  const std::string all = answer({checkpoint_program(), "--help"});
  for (const char* name : {"info", "verify", "diff", "merge", "reshape", "export", "import"}) {
    CAPTURE(name);
    const std::string one = answer({checkpoint_program(), name, "--help"});
    CHECK(mentions(one, std::string("Usage: megatron_checkpoint ") + name + " "));
    CHECK(mentions(one, "--virtual-stages") == (name == std::string("reshape")));
    CHECK(mentions(one, "--tolerance") == (name == std::string("diff")));
    CHECK(mentions(one, "--no-comparison") == (name == std::string("export") || name == std::string("import")));
    CHECK(mentions(all, std::string("  ") + name + " "));
  }
  CHECK(mentions(all, "--virtual-stages"));
}

TEST_CASE("--help: in the form that help2man and completion read") {
  const std::regex option("  (-[a-z] \\[ )?--[a-z-]+( \\])?( [^ ]+)?( \\(=[^ ]*\\))?(  +[^ -].*)?");
  for (const std::string& program : {train_program(), generate_program(), checkpoint_program(), preprocess_program()}) {
    const std::string help = answer({program, "--help"});
    CHECK(help.starts_with("Usage: " + fs::path(program).filename().string() + " "));
    std::istringstream lines(help);
    int options = 0;
    for (std::string line; std::getline(lines, line);) {
      CAPTURE(line);
      if (!line.starts_with("  --") && !line.starts_with("  -h")) continue;
      CHECK(std::regex_match(line, option));
      ++options;
    }
    CHECK(options >= 10);
  }
}

TEST_CASE("mistakes in sizes, batches and data come in one attempt") {
  Command command = {train_program(), input_file()};
  for (const char* setting : {"model.hidden_size=65", "train.global_batch_size=7", "data.train=nowhere"}) {
    command.insert(command.end(), {"--set", setting});
  }
  const std::vector<std::string> parts = {"model.hidden_size = 65 is not divisible",
                                          "train.global_batch_size = 7 is not a multiple",
                                          "nowhere-00000.h5: not found (" + fs::absolute("nowhere").string() + ")"};
  refused(command, parts);
  // Without a mistake in the file itself the ranks find the rest together.
  command.erase(command.begin() + 2, command.begin() + 4);
  refused(launched(2, command), {parts[1], parts[2]});
}

TEST_CASE("data that is something else: what it is and what to do") {
  const TemporaryFolder folder;
  const auto with_data = [&](const std::string& path) {
    return Command{train_program(), input_file(), "--set", "data.train=" + path, "--print-samples", "1"};
  };
  refused(with_data(data_prefix() + "-00000.h5"),
          {"names one shard of a set; name the set: \"" + data_prefix() + "\", without -00000.h5"}, 3);
  const std::string text = (shared_folder() / "corpus.jsonl").string();
  refused(with_data(text), {"megatron_preprocess --input " + text + " --output PREFIX"}, 3);
  write_file(folder.file("old.bin"), "");
  write_file(folder.file("old.idx"), "");
  refused(with_data(folder.file("old")), {"megatron_preprocess import " + folder.file("old") + " PREFIX"}, 3);
  refused(with_data("some/where*"), {"some/where* (" + fs::absolute("some/where*").string() + "): no token shards"}, 3);
}

TEST_CASE("--print-samples: a number of samples, with their text") {
  const Command command = {train_program(), input_file(), "--print-samples"};
  const auto print = [&](const std::string& range) {
    Command all = command;
    all.push_back(range);
    return answer(all);
  };
  const std::string five = print("5");
  CHECK(std::count(five.begin(), five.end(), '\n') == 5);
  CHECK(five == print("0:5"));
  const json first = json::parse(five.substr(0, five.find('\n')));
  std::string bytes;
  for (const int token : first.at("tokens").get<std::vector<int>>()) {
    if (token < 256) bytes += static_cast<char>(token);
  }
  CHECK(first.at("text") == bytes);
  Command wrong = command;
  wrong.push_back("five");
  refused(wrong, {"--print-samples five: give FIRST:COUNT or COUNT"});
}

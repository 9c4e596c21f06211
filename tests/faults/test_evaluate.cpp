// megatron_eval with files, checkpoints, layouts and surroundings that are not as they should be: the exit code, one
// error that names the place, and no result that could pass for a whole one.
#include <sys/mount.h>
#include <sys/stat.h>

#include "faults/checks.h"
#include "support/catch.h"
#include "support/pseudo_terminal.h"

namespace fs = std::filesystem;

namespace {

Command evaluate(const std::string& source, const std::string& task, const std::string& data,
                 const std::vector<std::string>& options = {}) {
  Command command = {MEGATRON_EVAL, source, "--task", task, "--data", data};
  command.insert(command.end(), options.begin(), options.end());
  return command;
}

void check_refused(const Finished& finished, int code, const std::string& part) {
  require_refused(finished, code, {part});
  CHECK(finished.out.empty());
}

const std::string kTexts = "{\"text\":\"the end\"}\n{\"text\":\"once upon a time\"}\n";

}  // namespace

TEST_CASE("megatron_eval: data that is not the task's is refused with its line", "[fault-82]") {
  const TemporaryFolder folder;
  const std::string& run = straight_run(kOneRank);
  const std::string data = folder.file("data"), output = folder.file("result.json");
  const auto refused = [&](const std::string& task, const std::string& contents, const std::string& part) {
    CAPTURE(task, part);
    write_file(data, contents);
    check_refused(run_command(evaluate(run, task, data, {"--output", output})), 3, part);
  };
  refused("lambada", "", "is empty");
  refused("lambada", "\n \n", "has no examples");
  refused("wikitext", "", "needs two");
  refused("wikitext", "a \xFF\xFE b", ":1: not valid UTF-8");
  refused("lambada", kTexts + "{\"text\":\"\xC3(\"}\n", ":3: not valid UTF-8");
  refused("lambada", kTexts + "{\"text\":7}\n", ":3: ");
  refused("lambada", kTexts + "{\"text\":\"the", ":3: ");
  refused("lambada", kTexts + "[\"text\"]\n", ":3: ");
  refused("lambada", "once upon a time", ":1: ");
  refused("lambada", "{\"words\":\"x\"}", "no key \"text\"");
  refused("choices", kTexts, "no key \"context\", and not the keys of HellaSwag, PIQA, ARC or MMLU");
  refused("choices", R"({"context":"a","choices":["b",2],"answer":0})", ":1: ");
  refused("choices", R"({"context":"a","choices":["b"],"answer":"x"})", "\"answer\" is x");
  refused("choices", R"({"context":"a","choices":["b"],"answer":-1})", ":1: ");
  refused("choices", R"({"context":"a","choices":["b"],"answer":1})", "\"answer\" is 1");
  refused("lambada", std::string(4000, '\x7F') + std::string(4000, '\0'), ":1: ");
  refused("lambada", kTexts + "{\"text\":" + std::string(100000, '['), ":3: ");
  // Two lines of 10 MB: one that is to be predicted as a whole, and one that the model's context cuts.
  const std::string megabytes(10 << 20, 'a');
  refused("choices", R"({"context":"a","choices":[")" + megabytes + "\"],\"answer\":0}", "tokens are to be predicted");
  write_file(data, "{\"text\":\"" + megabytes + "\"}\n");
  const Finished cut = run_command(evaluate(run, "lambada", data), 60);
  INFO(cut.err);
  CHECK(cut.code == 0);
  CHECK(mentions(cut.err + cut.out, "1 of 1 examples"));
  check_refused(run_command(evaluate(run, "lambada", folder.file("absent"))), 3, "absent");
  check_refused(run_command(evaluate(run, "lambada", folder.path())), 3, "not a regular file");
  const std::string pipe = folder.file("pipe");
  REQUIRE(::mkfifo(pipe.c_str(), 0600) == 0);
  check_refused(run_command(evaluate(run, "lambada", pipe), 20), 3, "not a regular file");
  CHECK_FALSE(fs::exists(output));
}

TEST_CASE("megatron_eval: impossible options and layouts are refused at once", "[fault-82]") {
  const TemporaryFolder folder;
  const std::string& run = straight_run(kOneRank);
  const std::string data = folder.file("data");
  write_file(data, kTexts);
  check_refused(run_command(evaluate(run, "lambda", data)), 2, "there are: wikitext, text, lambada, choices");
  check_refused(run_command(evaluate(run, "lambada", data, {"--stride", "4"})), 2, "--stride belongs to");
  check_refused(run_command(evaluate(run, "choices", data, {"--strict"})), 2, "--strict belongs to");
  check_refused(run_command(evaluate(run, "lambada", data, {"--begin-token", "maybe"})), 2, "--begin-token: auto");
  check_refused(run_command(evaluate(run, "lambada", data, {"--labels", data})), 2, "--labels belongs to");
  check_refused(run_command(evaluate(run, "lambada", data, {"--tensor", "0"})), 2, "--tensor");
  check_refused(run_command(evaluate(run, "lambada", data, {"--tensor", "2"})), 2,
                "needs a multiple of 2 ranks, not 1");
  check_refused(run_command(launched(3, evaluate(run, "lambada", data, {"--tensor", "2"})), 60), 2,
                "tensor 2 × pipeline 1 needs a multiple of 2 ranks, not 3");
  check_refused(run_command(launched(3, evaluate(run, "lambada", data, {"--tensor", "3"})), 60), 2, "tensor = 3");
  check_refused(run_command(evaluate(run, "lambada", data, {"--micro-batch-size", "1048576"})), 2, "fewer ranks");
  check_refused(run_command(evaluate(run, "wikitext", data, {"--stride", "1000"})), 2, "stride of 1000");
  for (const auto& [output, part] :
       {std::pair("no/such/r.json", "there is no folder"), std::pair(".", "is a folder")}) {
    check_refused(run_command(evaluate(run, "lambada", data, {"--output", folder.file(output)})), 7, part);
  }
}

TEST_CASE("megatron_eval: damaged or foreign checkpoints and vocabularies: 4", "[fault-82]") {
  const TemporaryFolder folder;
  const std::string run = folder.file("run"), data = folder.file("data");
  write_file(data, kTexts);
  copy_run(straight_run(kOneRank), run, 8);
  const std::string step = checkpoint(run, 8);
  REQUIRE(run_command(evaluate(step, "lambada", data)).code == 0);
  check_refused(run_command(evaluate(folder.file("absent"), "lambada", data)), 4, "absent");
  check_refused(run_command(evaluate(data, "lambada", data)), 4, "data");
  for (const auto& [name, contents] : rank_files(run, 8)) {
    std::string flipped = contents;
    flipped[flipped.size() / 2] = static_cast<char>(flipped[flipped.size() / 2] ^ 16);
    write_file(step + "/" + name, flipped);
    check_refused(run_command(evaluate(step, "lambada", data)), 4, step);
    write_file(step + "/" + name, contents.substr(0, contents.size() / 3));
    check_refused(run_command(evaluate(step, "lambada", data)), 4, step);
    fs::remove(step + "/" + name);
    check_refused(run_command(evaluate(step, "lambada", data)), 4, step);
  }
  // A run with another tokenizer: its files are not kept here, and those of others are refused.
  const std::string prefix = folder.file("data_bpe");
  REQUIRE(run_command(preprocess_with_vocabulary(prefix, small_vocabulary("merges.txt"))).code == 0);
  const std::string words = folder.file("words");
  train(kOneRank, words, {"data.train=" + prefix, "train.steps=2"});
  REQUIRE(run_command(evaluate(words, "lambada", data)).code == 0);
  write_file(folder.file("other.txt"), other_merges());
  check_refused(
      run_command(evaluate(words, "lambada", data,
                           {"--vocab-file", small_vocabulary("vocab.json"), "--merge-file", folder.file("other.txt")})),
      4, "another 'gpt2' vocabulary");
  fs::remove_all(words + "/tokenizer");
  check_refused(run_command(evaluate(words, "lambada", data)), 3, "--vocab-file");
}

TEST_CASE("megatron_eval: a full disk leaves no result and no temporary file: 7", "[fault-45]") {
  const TemporaryFolder folder;
  const std::string disk = folder.file("disk"), data = folder.file("data");
  write_file(data, kTexts);
  fs::create_directory(disk);
  if (::mount("tmpfs", disk.c_str(), "tmpfs", 0, "size=64k") != 0) {
    WARN("no right to mount a small file system: not tested");
    return;
  }
  {
    std::ofstream file(disk + "/filler", std::ios::binary);
    const std::string block(1024, 'x');
    while (file.write(block.data(), static_cast<std::streamsize>(block.size())).flush()) {
    }
  }
  const std::string output = disk + "/result.json";
  const Finished finished = run_command(evaluate(straight_run(kOneRank), "lambada", data, {"--output", output}));
  const auto files = std::distance(fs::directory_iterator(disk), fs::directory_iterator());
  ::umount2(disk.c_str(), MNT_DETACH);
  INFO(finished.err);
  CHECK(finished.code == 7);
  CHECK(error_lines(finished) == 1);
  CHECK(mentions(finished.err, "No space left"));
  CHECK(mentions(finished.out, "accuracy"));  // the table was printed all the same
  CHECK(files == 1);
}

TEST_CASE("megatron_eval: output that cannot be printed: 7 and the result remains", "[fault-65]") {
  const TemporaryFolder folder;
  const std::string data = folder.file("data"), output = folder.file("result.json");
  write_file(data, kTexts);
  const Command command = evaluate(straight_run(kOneRank), "lambada", data, {"--output", output});
  REQUIRE(run_command(command).code == 0);
  const std::string expected = contents_of(output);
  CHECK(mentions(expected, "\"examples\": 2"));
  for (const auto& [redirection, code] :
       {std::pair(">/dev/full", 7), std::pair(">&-", 7), std::pair("2>&-", 0), std::pair("2>/dev/full", 0)}) {
    CAPTURE(redirection);
    fs::remove(output);
    const Finished finished = run_command({"bash", "-c", "exec " + quoted(command) + redirection}, 60);
    INFO(finished.err);
    CHECK(finished.code == code);
    CHECK(contents_of(output) == expected);
  }
}

TEST_CASE("megatron_eval: an import's texts begin as its tokenizer's files say") {
  const TemporaryFolder folder;
  const std::string data = folder.file("data"), prefix = folder.file("shards"), run = folder.file("run");
  write_file(data, kTexts);
  expect(preprocess_with_vocabulary(prefix, small_vocabulary("merges.txt")), 0);
  train(kOneRank, run, {"data.train=" + prefix, "train.steps=2"});
  const auto result_of = [&](const std::string& source, const char* begin) {
    const std::string result = folder.file("result.json");
    done(evaluate(source, "lambada", data, {"--begin-token", begin, "--output", result, "--force"}));
    return nlohmann::json::parse(contents_of(result));
  };
  // Trained without: --begin-token yes takes the token that ends documents, as the vocabulary has no other.
  const nlohmann::json none = result_of(run, "no"), begun = result_of(run, "yes");
  CHECK(result_of(run, "auto") == none);
  CHECK_FALSE(none.contains("begin_token"));
  CHECK(begun.at("begin_token") == "<|endoftext|>");
  CHECK(begun.at("loss") != none.at("loss"));

  const std::string exported = folder.file("exported"), imported = folder.file("imported");
  done({checkpoint_program(), "export", run, exported});
  const std::string file = exported + "/tokenizer_config.json";
  nlohmann::json config = nlohmann::json::parse(contents_of(file));
  config.update({{"bos_token", "<|endoftext|>"}, {"add_bos_token", true}});
  write_file(file, config.dump());
  done({checkpoint_program(), "import", exported, imported});
  CHECK(result_of(imported, "auto") == begun);
  CHECK(result_of(imported, "no") == none);
}

TEST_CASE("begin token: programs put the imported tokenizer's in front of texts") {
  const TemporaryFolder folder;
  const std::string run = straight_run(kOneRank), exported = folder.file("exported"),
                    imported = folder.file("imported");
  done({checkpoint_program(), "export", run, exported});
  // A token of the vocabulary that does not end its documents: the byte "!".
  const std::string file = exported + "/tokenizer_config.json";
  nlohmann::json config = nlohmann::json::parse(contents_of(file));
  config.update({{"bos_token", "!"}, {"add_bos_token", true}});
  write_file(file, config.dump());
  nlohmann::json model = nlohmann::json::parse(contents_of(exported + "/config.json"));
  model.erase("megatron_train");  // our own note of the tokenizer, which has no such token
  write_file(exported + "/config.json", model.dump());
  done({checkpoint_program(), "import", exported, imported});
  const auto scored = [&](const std::string& source, const std::string& prompt, const Command& options) {
    Command command = {generate_program(), source, "--prompt", prompt, "--max-new-tokens", "0"};
    command.insert(command.end(), options.begin(), options.end());
    return nlohmann::json::parse(done(command).out).at("logprobs");
  };
  const nlohmann::json plain = scored(imported, "!Once", {"--no-begin-token"}),
                       automatic = scored(imported, "Once", {});
  REQUIRE(plain.size() == 5);
  REQUIRE(automatic.size() == 4);
  for (std::size_t i = 0; i < automatic.size(); ++i) CHECK(automatic[i] == plain[i + 1]);
  CHECK(scored(imported, "Once", {"--begin-token", "yes"}) == automatic);
  CHECK(scored(imported, "Once", {"--begin-token", "no"}) == scored(imported, "Once", {"--no-begin-token"}));
  // A model that was trained here begins with the end-of-document token.
  CHECK(scored(run, "Once", {}) == scored(run, "Once", {"--begin-token", "yes"}));
  CHECK(scored(run, "Once", {}) != automatic);
  for (const Command& wrong :
       {Command{"--begin-token", "maybe"}, Command{"--begin-token", "yes", "--no-begin-token"}}) {
    Command command = {generate_program(), run, "--prompt", "a"};
    command.insert(command.end(), wrong.begin(), wrong.end());
    check_refused(run_command(command), 2, "--begin-token");
  }
}

TEST_CASE("megatron_eval: a terminal shows the progress in a line, a pipe none") {
  const TemporaryFolder folder;
  const std::string data = folder.file("data");
  write_file(data, std::string(60, 'a'));  // 60 tokens in windows of 16, 8 apart, 4 at a time
  const Command command = evaluate(straight_run(kOneRank), "text", data, {"--micro-batch-size", "1"});
  const Finished piped = done(command);
  CHECK(mentions(piped.out, "bits per byte        "));
  CHECK_FALSE(mentions(piped.out + piped.err, "sequences"));

  PseudoTerminal terminal(100);
  const pid_t child = terminal.start(command);
  CHECK(terminal.wait_for("bits per word"));
  CHECK(PseudoTerminal::exit_code(child) == 0);
  for (const char* shown : {"0 of 7 sequences", "4 of 7 sequences (57 %), ", "7 of 7 sequences (100 %), "}) {
    CHECK(mentions(terminal.printed(), shown));
  }
  CHECK_FALSE(mentions(terminal.screen(), "sequences"));  // the result has taken its place
}

TEST_CASE("megatron_eval: a signal ends it at once, without a result", "[fault-82]") {
  const TemporaryFolder folder;
  const std::string data = folder.file("data"), output = folder.file("result.json");
  std::string text;
  for (int i = 0; i < 100000; ++i) text += "the mill stood by the river ";  // for minutes
  write_file(data, text);
  const Command command = evaluate(straight_run(kOneRank), "wikitext", data, {"--stride", "1", "--output", output});
  for (const int number : {SIGINT, SIGTERM}) {
    for (const int ranks : {0, 2}) {
      CAPTURE(number, ranks);
      Process process(launched(ranks, command));
      REQUIRE(process.wait_until_busy(ranks > 0 ? "megatron_eval" : ""));
      process.signal(number);
      const Finished finished = process.wait(20);
      INFO(finished.err);
      CHECK_FALSE(finished.timed_out);
      CHECK(finished.code != 0);
      if (ranks == 0) CHECK(finished.code == 128 + number);
      CHECK(finished.out.empty());
      CHECK_FALSE(fs::exists(output));
    }
  }
}

// megatron_generate: what it makes on any layout, and everything that can be wrong with what it is given.
#include <sys/mount.h>

#include "faults/checks.h"
#include "support/catch.h"

namespace fs = std::filesystem;
using nlohmann::json;

namespace {

/// Tokens and texts without what rounding may change.
std::vector<json> exact(std::vector<json> lines) {
  for (json& line : lines) line.erase("logprobs");
  return lines;
}

std::string prompts_file(const TemporaryFolder& folder) {
  const std::string path = folder.file("prompts.txt");
  write_file(path, "Once\n\n{\"text\": \"The king\"}\nA\nB\n");
  return path;
}

}  // namespace

TEST_CASE("generation: a file of prompts makes the same texts on every layout") {
  const TemporaryFolder folder;
  const std::string prompts = prompts_file(folder), output = folder.file("texts.jsonl");
  const std::vector<std::string> options = {"--prompts",        prompts, "--output",      output, "--samples", "2",
                                            "--max-new-tokens", "24",    "--temperature", "0.7",  "--force"};
  const auto texts = [&](const std::vector<std::string>& more, int ranks) {
    std::vector<std::string> all = options;
    all.insert(all.end(), more.begin(), more.end());
    done(generate(all, ranks));
    return lines_of(contents_of(output));
  };
  const auto one = texts({}, 0);
  REQUIRE(one.size() == 10);
  CHECK(one[0].at("prompt") == "Once");
  CHECK(one[2].at("prompt") == "");
  CHECK(one[5].at("prompt") == "The king");
  CHECK(one[5].at("sample") == 1);
  CHECK(one[0].at("tokens") != one[1].at("tokens"));
  for (const json& line : one) CHECK(line.at("logprobs").size() == line.at("tokens").size());
  CHECK(exact(texts({"--batch", "3"}, 0)) == exact(one));
  CHECK(exact(texts({"--tensor", "2", "--pipeline", "2", "--batch", "1"}, 8)) == exact(one));
  CHECK(folder.files() == std::vector<std::string>{"prompts.txt", "texts.jsonl"});
}

TEST_CASE("generation: greedy texts with guesses and beams match on every layout") {
  const std::vector<std::string> prompt = {"--prompt", "Once upon"};
  const auto text = [&](std::vector<std::string> options, int ranks) {
    options.insert(options.end(), prompt.begin(), prompt.end());
    return done(generate(options, ranks)).out;
  };
  const std::string greedy = text({"--greedy"}, 0);
  CHECK(text({"--greedy", "--speculate", "4"}, 0) == greedy);
  CHECK(text({"--greedy", "--tensor", "2", "--pipeline", "2"}, 4) == greedy);
  const std::string beams = text({"--beams", "3", "--max-new-tokens", "6"}, 0);
  CHECK(beams.starts_with("Once upon"));
  CHECK(text({"--beams", "3", "--max-new-tokens", "6", "--pipeline", "2"}, 2) == beams);
  CHECK(text({"--beams", "1", "--max-new-tokens", "6"}, 0) == text({"--greedy", "--max-new-tokens", "6"}, 0));
}

TEST_CASE("generation: scores of prompts, likeliest tokens, logits") {
  const TemporaryFolder folder;
  const std::string output = folder.file("out.jsonl"), logits = folder.file("logits.h5");
  done(generate({"--prompt", "Once", "--max-new-tokens", "3", "--output", output, "--logprobs", "2", "--logits", logits,
                 "--greedy"}));
  const json made = lines_of(contents_of(output)).at(0);
  REQUIRE(made.at("tokens").size() == 3);
  REQUIRE(made.at("top_logprobs").size() == 3);
  for (std::size_t i = 0; i < 3; ++i) {
    CHECK(made.at("top_logprobs")[i][0][0] == made.at("tokens")[i]);  // greedy
    CHECK(made.at("top_logprobs")[i][0][1].get<double>() == Approx(made.at("logprobs")[i].get<double>()).epsilon(1e-6));
  }
  CHECK(fs::file_size(logits) > 3 * 257 * sizeof(float));
  // The same tokens as a prompt have the same log-probabilities.
  const json scored =
      lines_of(done(generate({"--prompt", "Once" + made.at("text").get<std::string>(), "--max-new-tokens", "0"})).out)
          .at(0);
  const std::size_t count = scored.at("tokens").size();
  REQUIRE(count == 7);
  REQUIRE(scored.at("logprobs").size() == count);
  for (std::size_t i = 0; i < 3; ++i) {
    CHECK(scored.at("logprobs")[4 + i].get<double>() == Approx(made.at("logprobs")[i].get<double>()).epsilon(1e-5));
  }
}

TEST_CASE("generation: a plan says each rank's memory and too much is refused") {
  const Finished plan =
      done(generate({"--prompt", "Once", "--dry-run", "--ranks", "8", "--tensor", "2", "--pipeline", "2"}));
  CHECK(mentions(plan.out, "8 ranks: tensor 2 × pipeline 2 × data 2"));
  CHECK(mentions(plan.out, "The largest rank takes "));
  require_refused(run_command(generate({"--prompt", "Once", "--dry-run", "--ranks", "7", "--tensor", "2"})), 2,
                  {"needs a multiple of 2 ranks, not 7"});
  // A long context, of many texts at a time.
  const TemporaryFolder folder;
  const std::string run = folder.file("run");
  train(kOneRank, run,
        {"model.sequence_length=2048", "train.micro_batch_size=1", "train.global_batch_size=1", "train.steps=2",
         "train.evaluate_every=0", "checkpoint.every_steps=2"});
  require_refused(run_command({generate_program(), run, "--unconditional", "65536", "--batch", "65536",
                               "--max-new-tokens", "2000"}),
                  2, {"together, and ", "are free there; use fewer ranks per node", "a smaller --batch"});
}

TEST_CASE("generation: options that exclude each other, or are out of range") {
  struct Case {
    std::vector<std::string> options;
    std::string words;
  };
  const std::vector<Case> cases = {
      {{}, "give --prompt TEXT"},
      {{"--prompt", "a", "--prompts", "f"}, "exclude each other"},
      {{"--chat", "--prompt", "a"}, "exclude each other"},
      {{"--prompt", "a", "--system", "s"}, "--system belongs to --chat"},
      {{"--chat", "--special-tokens"}, "--special-tokens has no meaning for --chat"},
      {{"--chat"}, "--chat needs a model that was fine-tuned here with task.name = \"instructions\""},
      {{"--interactive", "--serve-stdio"}, "exclude each other"},
      {{"--unconditional", "0"}, "--unconditional: 1 to"},
      {{"--prompt", "a", "--samples", "0"}, "--samples: 1 to"},
      {{"--prompt", "a", "--top-p", "0.5", "--top-p-decay", "0"}, "--top-p-decay: more than 0, at most 1"},
      {{"--prompt", "a", "--top-p", "0.5", "--top-p-bound", "0.6"}, "--top-p-bound: between 0 and top-p"},
      {{"--prompt", "a", "--repetition-penalty", "0"}, "--repetition-penalty: more than 0"},
      {{"--prompt", "a", "--stop", ""}, "--stop"},
      {{"--prompt", "a", "--beams", "0"}, "--beams: 1 to 1024"},
      {{"--prompt", "a", "--beams", "2", "--top-k", "3"}, "--top-k has no meaning for --beams"},
      {{"--prompt", "a", "--beams", "2", "--stop", "x"}, "no meaning for --beams"},
      {{"--prompt", "a", "--length-penalty", "2"}, "--length-penalty belongs to --beams"},
      {{"--prompt", "a", "--speculate", "-1"}, "--speculate: 0 to"},
      {{"--prompt", "a", "--logprobs", "3"}, "--logprobs needs --output"},
      {{"--prompt", "a", "--top-p-decay", "0.5"}, "--top-p-decay belongs to --top-p"},
      {{"--prompt", "a", "--batch", "0"}, "--batch: 1 to"},
      {{"--prompt", "a", "--ranks", "2"}, "--ranks belongs to --dry-run"},
      {{"--prompt", "a", "--tensor", "0"}, "--tensor and --pipeline: 1 or more"},
      {{"--prompt", "a", "--threads", "0"}, "--threads: 1 to 1024"},
      {{"--prompt", "a", "--precision", "fp8"}, "--precision: fp32, bf16, fp16 or checkpoint"},
      {{"--interactive", "--output", "x"}, "--output needs prompts"},
      {{"--serve-stdio", "--max-new-tokens", "0"}, "--max-new-tokens: 1 or more"},
      {{"--prompt", "a", "--tempreature", "1"}, "did you mean --temperature?"},
  };
  for (const Case& wrong : cases) {
    CAPTURE(wrong.options);
    require_refused(run_command(generate(wrong.options), 30), 2, {wrong.words});
  }
  const std::vector<std::vector<std::string>> without_samples = {{"--samples", "2"},
                                                                 {"--seed", "1"},
                                                                 {"--greedy"},
                                                                 {"--temperature", "0.5"},
                                                                 {"--top-k", "3"},
                                                                 {"--top-p", "1"},
                                                                 {"--top-p-bound", "0.1"},
                                                                 {"--top-p-decay", "0.5"},
                                                                 {"--stop", "x"},
                                                                 {"--stop-on-newline"},
                                                                 {"--repetition-penalty", "2"},
                                                                 {"--speculate", "2"},
                                                                 {"--beams", "2"}};
  for (std::vector<std::string> options : without_samples) {
    CAPTURE(options);
    const std::string words = options[0] + " has no meaning for --max-new-tokens 0, which scores prompts";
    options.insert(options.end(), {"--prompt", "a", "--max-new-tokens", "0"});
    require_refused(run_command(generate(options), 30), 2, {words});
  }
  require_refused(run_command(generate({"--prompt", "a", "--tensor", "3"}, 3), 30), 2, {"tensor"});
  require_refused(run_command(generate({"--serve-stdio"}, 2), 30), 2, {"--serve-stdio works on one copy of the model"});
  require_refused(run_command(generate({"--prompt", "a", "--beams", "2", "--max-new-tokens", "20"}), 30), 2,
                  {"beams of 20 new tokens do not fit into the model's context of 16"});
}

TEST_CASE("generation: damaged or foreign or empty or huge prompt files: 3", "[fault-83]") {
  const TemporaryFolder folder;
  const std::string path = folder.file("prompts.txt"), output = folder.file("out.jsonl");
  const auto with = [&](const std::string& contents, std::vector<std::string> more = {}) {
    write_file(path, contents);
    more.insert(more.end(), {"--prompts", path, "--output", output, "--max-new-tokens", "4"});
    return run_command(generate(more), 60);
  };
  require_refused(with(""), 3, {"prompts.txt is empty"});
  require_refused(with("a\n\xff\xfe\n"), 3, {"prompts.txt:2: not valid UTF-8"});
  require_refused(with("a\n{\"prompt\": \n"), 3, {"prompts.txt:2: damaged JSON"});
  require_refused(with("{\"id\": 3}\n"), 3, {"prompts.txt:1:", "neither"});
  require_refused(with("a\nlonger than sixteen tokens\n"), 3,
                  {"prompts.txt:2: 27 tokens", "room for 16", "--truncate"});
  const std::string huge(10 << 20, 'x');
  require_refused(with(huge + "\n"), 3, {"prompts.txt:1: 10485761 tokens"});
  CHECK_FALSE(fs::exists(output));
  CHECK(with(huge + "\n", {"--truncate"}).code == 0);
  CHECK(lines_of(contents_of(output)).at(0).at("tokens").size() == 4);
  fs::remove(path);
  require_refused(run_command(generate({"--prompts", path})), 3, {"prompts.txt"});
  require_refused(run_command(generate({"--prompts", folder.path()})), 3, {"not a regular file"});
  require_refused(run_command(generate({"--prompt", "\xff"})), 3, {"--prompt: not valid UTF-8"});
  require_refused(run_command(launched(2, generate({"--prompts", path}))), 3, {"prompts.txt"});
}

TEST_CASE("generation: a damaged or absent or foreign vocabulary: 4", "[fault-83]") {
  const TemporaryFolder folder;
  const std::string run = folder.file("run"), prefix = folder.file("data/small"), damaged = folder.file("vocab.json"),
                    others = folder.file("merges.txt");
  REQUIRE(run_command(preprocess_with_vocabulary(prefix, small_vocabulary("merges.txt"))).code == 0);
  train(kOneRank, run, {"data.train=" + prefix, "train.steps=2", "train.evaluate_every=0", "checkpoint.every_steps=2"});
  const auto with = [&](const std::string& vocabulary, const std::string& merges) {
    return run_command({generate_program(), run, "--prompt", "a", "--max-new-tokens", "2", "--vocab-file", vocabulary,
                        "--merge-file", merges},
                       30);
  };
  const std::string vocabulary = small_vocabulary("vocab.json"), merges = small_vocabulary("merges.txt");
  REQUIRE(with(vocabulary, merges).code == 0);
  write_file(damaged, "{\"a\": ");
  require_refused(with(damaged, merges), 3, {damaged});
  require_refused(with(folder.file("none"), merges), 3, {folder.file("none")});
  write_file(others, other_merges());
  require_refused(with(vocabulary, others), 4, {"another 'gpt2' vocabulary"});
  // The other run's tokenizer has no files.
  require_refused(run_command(generate({"--prompt", "a", "--vocab-file", vocabulary, "--merge-file", merges}), 30), 2,
                  {"--vocab-file"});
}

TEST_CASE("generation: Ctrl-C ends it with 130 and leaves no file", "[fault-83]") {
  const TemporaryFolder folder;
  for (const char* option : {"--output", "--logits"}) {
    CAPTURE(option);
    Process process(generate({"--unconditional", "100000", "--max-new-tokens", "1000", option, folder.file("out")}));
    REQUIRE(process.wait_until_busy());
    process.signal(SIGINT);
    const Finished finished = process.wait(20);
    INFO(finished.err);
    CHECK(finished.code == 130);
    CHECK(folder.files().empty());
  }
}

TEST_CASE("generation: a reader that goes away ends it with 7", "[fault-83]") {
  const int ranks = GENERATE(0, 2);
  CAPTURE(ranks);
  const std::string words = quoted(generate({"--unconditional", "100000", "--max-new-tokens", "1000"}, ranks));
  const Finished finished = in_shell("set -o pipefail; " + words + " | head -c 100 > /dev/null; exit ${PIPESTATUS[0]}");
  if (ranks == 0) return require_refused(finished, 7, {"standard output cannot be written"});
  // Between a rank and its reader is mpirun, which gives up by itself: with 1, by the signal, or by a crash in mpirun.
  INFO(finished.out << finished.err);
  CHECK_FALSE(finished.timed_out);
  CHECK((finished.code == 1 || finished.code == 128 + SIGPIPE || finished.code == 128 + SIGSEGV));
  CHECK(mentions(finished.err, "run: SIGPIPE detected"));  // mpirun, or Open MPI 5's prterun
  CHECK(last_line(finished.err).starts_with("launch: "));
}

TEST_CASE("generation: output that cannot be written is 7 and early if possible", "[fault-83]") {
  const TemporaryFolder folder;
  write_file(folder.file("old.jsonl"), "old");
  const auto to = [&](const std::string& path, const std::string& option = "--output") {
    return run_command(generate({"--prompt", "a", "--max-new-tokens", "4", option, path}), 30);
  };
  require_refused(to(folder.file("none/out.jsonl")), 7, {"there is no folder"});
  require_refused(to(folder.path()), 7, {"is a folder"});
  require_refused(to("/dev/null"), 7, {"not a regular file"});
  require_refused(to(folder.file("old.jsonl")), 2, {"old.jsonl: there is such a file", "--force"});
  require_refused(run_command(generate({"--prompts", folder.file("old.jsonl"), "--max-new-tokens", "4", "--force",
                                        "--output", folder.path() + "/./old.jsonl"}),
                              30),
                  2, {"old.jsonl is a file that this command reads"});
  fs::create_symlink("old.jsonl", folder.file("link"));
  require_refused(to(folder.file("link")), 7, {"link is a symbolic link"});
  require_refused(to(folder.file("link"), "--logits"), 7, {"link is a symbolic link"});
  CHECK(contents_of(folder.file("old.jsonl")) == "old");
  require_refused(to(folder.file("none/out.h5"), "--logits"), 7, {"there is no folder"});
  CHECK(fs::is_character_file("/dev/null"));
  const std::string disk = folder.file("disk");
  fs::create_directory(disk);
  if (::mount("tmpfs", disk.c_str(), "tmpfs", 0, "size=64k") != 0) {
    WARN("no right to mount a small file system: not tested");
    return;
  }
  write_file(disk + "/out.jsonl", "old");
  const Finished full = run_command(
      generate({"--unconditional", "300", "--max-new-tokens", "40", "--output", disk + "/out.jsonl", "--force"}), 60);
  const Finished logits =
      run_command(generate({"--unconditional", "8", "--max-new-tokens", "40", "--logits", disk + "/logits.h5"}), 60);
  std::vector<std::string> left;
  for (const auto& entry : fs::directory_iterator(disk)) left.push_back(entry.path().filename().string());
  const std::string old = contents_of(disk + "/out.jsonl");
  ::umount2(disk.c_str(), MNT_DETACH);
  require_refused(full, 7, {"No space left on device"});
  require_refused(logits, 7, {"logits.h5"});
  CHECK(left == std::vector<std::string>{"out.jsonl"});
  CHECK(old == "old");
}

TEST_CASE("generation: requests on standard input, and a client that goes away", "[fault-83]") {
  const TemporaryFolder folder;
  write_file(folder.file("requests"),
             "{\"id\": 1, \"prompt\": \"Once\", \"max_new_tokens\": 4}\nnonsense\n"
             "{\"id\": 2, \"prompt\": \"Once\", \"max_new_tokens\": 4}\n");
  for (const int ranks : {0, 2}) {
    CAPTURE(ranks);
    const Command command = generate(ranks == 0 ? std::vector<std::string>{"--serve-stdio"}
                                                : std::vector<std::string>{"--serve-stdio", "--tensor", "2"},
                                     ranks);
    const Finished finished = in_shell(quoted(command) + " < " + folder.file("requests"));
    INFO(finished.err);
    CHECK(finished.code == 0);
    const auto answers = lines_of(finished.out);
    REQUIRE(answers.size() == 4);
    CHECK(answers[0].at("ready") == true);
    CHECK(answers[1].at("tokens") == answers[3].at("tokens"));
    CHECK(answers[2].at("kind") == "data");
  }
  // Lines that no request is: each has its answer, in bounded memory, and ends nothing.
  std::string hostile = "\n{\"id\": 1, \"prompt\": \"a\", \"prompt\": \"b\"}\n{\"id\": 12345678901234567890123}\n";
  for (const std::size_t count : {std::size_t{15} << 20, std::size_t{60} << 20})
    hostile += std::string(count, '[') + "\n";
  write_file(folder.file("hostile"), hostile + "{\"id\": \"last\", \"prompt\": \"a\", \"max_new_tokens\": 1}\n");
  const Finished finished =
      in_shell("ulimit -v 3000000; " + quoted(generate({"--serve-stdio"})) + " < " + folder.file("hostile"));
  INFO(finished.err);
  CHECK(finished.code == 0);
  const auto answers = lines_of(finished.out);
  REQUIRE(answers.size() == 1 + 5 + 1);
  for (const auto& [answer, part] :
       {std::pair(1, "expected an object"), std::pair(2, "is there twice"), std::pair(3, "give it as a string"),
        std::pair(4, "expected an object"), std::pair(5, "the line is too long")}) {
    CHECK(mentions(answers[static_cast<std::size_t>(answer)].at("error").get<std::string>(), part));
  }
  CHECK(answers[2].at("id") == 1);
  CHECK(answers[6].at("id") == "last");
  const Finished gone =
      in_shell("(cat " + folder.file("requests") + "; sleep 2; yes '{\"prompt\": \"a\"}') | " +
               quoted(generate({"--serve-stdio"})) + " | head -n 1 > /dev/null; exit ${PIPESTATUS[1]}");
  require_refused(gone, 7, {"standard output cannot be written"});
}

// The programs' answers that need no training: plans, configurations, samples; and text from checkpoints.
#include <nlohmann/json.hpp>

#include "faults/runs.h"
#include "support/catch.h"

namespace fs = std::filesystem;
using nlohmann::json;

namespace {

Finished ask(const Command& command) {
  const Finished finished = run_command(command, 30);
  INFO(finished.err);
  REQUIRE(finished.code == 0);
  return finished;
}

Finished samples(const std::string& range, const Settings& settings = {}) {
  Command command = {train_program(), input_file(), "--print-samples", range};
  for (const std::string& setting : settings) command.insert(command.end(), {"--set", setting});
  return ask(command);
}

Command generate_from(const std::string& source, const std::vector<std::string>& options) {
  Command command = {generate_program(), source, "--prompt", "Once upon", "--max-new-tokens", "24"};
  command.insert(command.end(), options.begin(), options.end());
  return command;
}

// All documents as the byte tokenizer has them, each followed by the end-of-document token.
std::vector<int> corpus_tokens() {
  std::vector<int> tokens;
  std::ifstream file(shared_folder() / "corpus.jsonl");
  for (std::string line; std::getline(file, line);) {
    for (const char byte : json::parse(line).at("text").get<std::string>()) {
      tokens.push_back(static_cast<unsigned char>(byte));
    }
    tokens.push_back(256);
  }
  return tokens;
}

}  // namespace

TEST_CASE("the plan of gpt2-large has the published numbers of parameters") {
  const Finished plan =
      ask({train_program(), source_folder() + "/inputs/gpt2_large.toml", "--dry-run", "--ranks", "4"});
  CHECK(mentions(plan.out, "\nper rank  210753280 209445120 parameters, by stage\n"));
}

TEST_CASE("--parameters prints all parameters that --dry-run counts") {
  const std::string input = source_folder() + "/inputs/gpt2_large.toml";
  const std::string table = ask({train_program(), input, "--parameters", "--ranks", "4"}).out, total = last_line(table);
  CHECK(mentions(table, "\nembedding.position.weight "));
  const Finished plan = ask({train_program(), input, "--dry-run", "--ranks", "4"});
  CHECK(mentions(plan.out, "\nmodel     " + total.substr(total.rfind(' ') + 1) + " parameters; "));

  Command cut = {train_program(), input_file(), "--parameters"};
  for (const char* extent : {"parallel.tensor=2", "parallel.pipeline=2"}) cut.insert(cut.end(), {"--set", extent});
  const std::string of_four = ask(cut).out;
  CHECK(mentions(of_four, " columns over tensor "));
  CHECK(mentions(of_four, " 0, 1 "));  // the tied table's stages
  cut.insert(cut.end(), {"--ranks", "6"});
  CHECK(run_command(cut, 30).code == 2);
  CHECK(run_command({train_program(), input_file(), "--parameters", "--verify"}, 30).code == 2);
}

TEST_CASE("every input file plans, and its printed configuration prints itself", "[fault-7]") {
  const TemporaryFolder folder;
  int files = 0;
  for (const auto& entry : fs::directory_iterator(source_folder() + "/inputs")) {
    if (entry.path().extension() != ".toml") continue;
    ++files;
    CAPTURE(entry.path().string());
    const Finished plan = ask({train_program(), entry.path().string(), "--dry-run"});
    CHECK(mentions(plan.out, "memory per rank"));
    const Finished printed = ask({train_program(), entry.path().string(), "--print-config"});
    const std::string copy = folder.file("copy.toml");
    write_file(copy, printed.out);
    CHECK(ask({train_program(), copy, "--print-config"}).out == printed.out);
  }
  CHECK(files >= 5);
}

TEST_CASE("printed samples are pieces of the corpus, and the same in a longer run") {
  const Finished three = samples("0:3");
  CHECK(samples("0:3").out == three.out);
  CHECK(samples("0:3", {"train.steps=500", "parallel.tensor=2"}).out == three.out);
  const Finished more = samples("0:40", {"train.steps=500"});
  CHECK(more.out.compare(0, three.out.size(), three.out) == 0);
  CHECK(samples("0:3", {"train.seed=99"}).out != three.out);

  const std::vector<int> corpus = corpus_tokens();
  std::istringstream lines(more.out);
  int count = 0;
  for (std::string line; std::getline(lines, line); ++count) {
    const json sample = json::parse(line);
    CHECK(sample.at("sample") == count);
    const auto tokens = sample.at("tokens").get<std::vector<int>>();
    CHECK(tokens.size() == 17);
    CHECK(std::search(corpus.begin(), corpus.end(), tokens.begin(), tokens.end()) != corpus.end());
  }
  CHECK(count == 40);
}

TEST_CASE("an answer that cannot be printed is an error and not half an answer") {
  const std::vector<Command> answers = {{train_program(), input_file(), "--print-config"},
                                        {train_program(), input_file(), "--print-samples", "0:200"},
                                        {preprocess_program(), "--help"},
                                        {generate_program(), "--version"},
                                        {checkpoint_program(), "info", straight_run(kCube), "--tensors"},
                                        generate_from(straight_run(kCube), {})};
  for (Command command : answers) {
    CAPTURE(command);
    CHECK(ask(command).out.size() > 20);
    command.insert(command.begin(), {"sh", "-c", "\"$@\" > /dev/full", "sh"});
    const Finished finished = run_command(command, 30);
    CHECK(finished.code == 7);
    CHECK(mentions(finished.err, "standard output"));
  }
}

TEST_CASE("text: the same seed writes the same, greedy needs none") {
  const std::string& run = straight_run(kCube);
  const std::string text = ask(generate_from(run, {"--seed", "7"})).out;
  CHECK(text.rfind("Once upon", 0) == 0);
  CHECK(ask(generate_from(run, {"--seed", "7"})).out == text);
  CHECK(ask(generate_from(run, {"--seed", "8"})).out != text);
  const std::string greedy = ask(generate_from(run, {"--greedy"})).out;
  CHECK(ask(generate_from(run, {"--greedy", "--seed", "8"})).out == greedy);
  CHECK(ask(generate_from(checkpoint(run, kPlannedSteps), {"--greedy"})).out == greedy);
  CHECK(ask(generate_from(run, {"--top-k", "1", "--seed", "9"})).out == greedy);
  CHECK(ask(generate_from(run, {"--top-k", "1", "--top-p", "0.5"})).out == greedy);
}

TEST_CASE("text: the end-of-document token comes first unless switched off") {
  const std::string& run = straight_run(kCube);
  const auto from = [&](const std::string& prompt, const std::string& option) {
    Command command = {generate_program(), run, "--prompt", prompt, "--max-new-tokens", "40", "--seed", "3"};
    if (!option.empty()) command.push_back(option);
    return ask(command).out;
  };
  CHECK(from("O", "") != from("O", "--no-begin-token"));
  CHECK(from("", "").size() > 1);
}

TEST_CASE("programs: variants with fewer groups than ranks train and resume") {
  const Settings variants[] = {
      {"model.position_embedding=rope", "model.normalization=rmsnorm", "model.activation=swiglu", "model.bias=false",
       "model.tie_embeddings=false", "model.query_groups=2"},
      {"model.position_embedding=alibi", "model.query_groups=1", "model.activation=gelu_exact"},
      {"model.position_embedding=rope", "model.query_key_norm=true", "model.query_groups=2", "model.activation=geglu"}};
  for (const Settings& variant : variants) {
    INFO(variant.front() << ", " << variant.back());
    const auto with = [&](const Settings& more) {
      Settings settings = variant;
      settings.insert(settings.end(), more.begin(), more.end());
      return settings;
    };
    const TemporaryFolder folder;
    const std::string one = folder.file("one"), split = folder.file("split"), copy = folder.file("copy");
    train(kOneRank, one, with({}));
    train({.tensor = 4}, split, with({"train.steps=4", "checkpoint.every_steps=4"}));
    train({.tensor = 2, .pipeline = 2}, split, with({"parallel.sequence_parallel=true", "checkpoint.every_steps=4"}));
    const std::vector<double> expected = losses(one), got = losses(split);
    REQUIRE(expected.size() == static_cast<std::size_t>(kPlannedSteps));
    REQUIRE(got.size() == expected.size());
    for (std::size_t i = 0; i < got.size(); ++i) CHECK(got[i] == Approx(expected[i]).epsilon(1e-4));

    // One rank's files of what four ranks have saved: the same text.
    train(kOneRank, copy,
          with({"checkpoint.initialize_from=" + checkpoint(split, 4), "train.steps=1", "learning_rate.peak=1e-30",
                "learning_rate.minimum=0", "checkpoint.every_steps=1"}));
    const std::string text = ask(generate_from(checkpoint(split, 4), {"--greedy"})).out;
    CHECK(text.rfind("Once upon", 0) == 0);
    CHECK(ask(generate_from(copy, {"--greedy"})).out == text);
    CHECK(ask(generate_from(split, {"--seed", "7"})).out == ask(generate_from(split, {"--seed", "7"})).out);
  }
}

TEST_CASE("text is the same from one rank's checkpoint of the same weights") {
  const TemporaryFolder folder;
  const std::string directory = folder.file("run");
  // A step with a learning rate below the resolution of fp32 saves what eight ranks have trained as it is.
  train(kOneRank, directory,
        {"checkpoint.initialize_from=" + straight_run(kCube), "train.steps=1", "learning_rate.peak=1e-30",
         "learning_rate.minimum=0", "checkpoint.every_steps=1"});
  CHECK(rank_files(directory, 1).size() == 1);
  const std::string from_cube = ask(generate_from(straight_run(kCube), {"--greedy"})).out;
  CHECK(ask(generate_from(directory, {"--greedy"})).out == from_cube);
  const std::string sampled = ask(generate_from(straight_run(kCube), {"--seed", "3"})).out;
  CHECK(ask(generate_from(directory, {"--seed", "3"})).out == sampled);
}

TEST_CASE("programs: options together train and write what one rank does") {
  struct Options {
    Layout layout;
    Settings settings;
    double tolerance = 1e-5;
  };
  const Options options = GENERATE(
      Options{kCube,
              {"precision.compute=bf16", "parallel.sequence_parallel=true", "recompute.mode=selective",
               "optimizer.share=state"},
              5e-3},
      Options{kCube,
              {"parallel.schedule=interleaved", "parallel.virtual_stages=2", "parallel.sequence_parallel=true",
               "parallel.overlap_gradients=true", "recompute.mode=full"}},
      Options{kCube,
              {"parallel.schedule=zero_bubble", "parallel.sequence_parallel=true", "optimizer.share=state",
               "recompute.mode=full", "recompute.layers=1"}},
      Options{{1, 1, 4}, {"train.micro_batch_size=1", "optimizer.share=state", "parallel.overlap_gradients=true"}});
  CAPTURE(options.layout.name(), options.settings.front());
  const TemporaryFolder folder;
  const std::string directory = folder.file("run");
  Settings settings = options.settings;
  settings.push_back("checkpoint.every_steps=8");
  train(options.layout, directory, settings);
  const std::vector<double> here = losses(directory), there = losses(straight_run(kOneRank));
  REQUIRE(here.size() == there.size());
  for (std::size_t i = 0; i < here.size(); ++i) CHECK(here[i] == Approx(there[i]).epsilon(options.tolerance));
  const std::string text = ask(generate_from(directory, {"--seed", "7"})).out;
  CHECK(text.size() > std::string("Once upon").size() + 1);
  if (options.tolerance < 1e-4) CHECK(text == ask(generate_from(straight_run(kOneRank), {"--seed", "7"})).out);
}

TEST_CASE("generation refuses what it cannot do") {
  const TemporaryFolder folder;
  const std::string& run = straight_run(kCube);
  struct Mistake {
    Command command;
    int code;
    const char* words;
  };
  const Mistake mistakes[] = {
      {generate_from(folder.file("nothing"), {}), 4, "nothing"},
      {generate_from(folder.path(), {}), 4, "manifest.json is missing; name a run directory"},
      {generate_from(run, {"--temperature", "0"}), 2, "--temperature"},
      {generate_from(run, {"--greedy", "--temperature", "2"}), 2, "--greedy"},
      {generate_from(run, {"--top-p", "1.5"}), 2, "--top-p"},
      {generate_from(run, {"--tempreature", "1"}), 2, "--temperature"},
      {{generate_program(), run}, 2, "--prompt"},
      {{generate_program(), run, "--prompt", "", "--no-begin-token"}, 2, "at least one character"},
  };
  for (const Mistake& mistake : mistakes) {
    const Finished finished = run_command(mistake.command, 30);
    CAPTURE(mistake.words);
    INFO(finished.err);
    CHECK(finished.code == mistake.code);
    CHECK(error_lines(finished) == 1);
    CHECK(mentions(finished.err, mistake.words));
  }
}

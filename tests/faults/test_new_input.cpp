// megatron_train --new as people use it: answers from a pipe and on a terminal, and runs of the files that it makes.
#include <csignal>

#include "faults/checks.h"
#include "support/catch.h"
#include "support/pseudo_terminal.h"

namespace fs = std::filesystem;

namespace {

/// A folder whose data/ has the shared corpus.
struct NewInputFolder : TemporaryFolder {
  NewInputFolder() { fs::create_directory_symlink(fs::path(data_prefix()).parent_path(), file("data")); }
};

const std::string kDefaults(60, '\n');

/// `--new new.toml` with these answers on standard input.
Finished answered(const NewInputFolder& place, const std::string& answers) {
  return run_command({"bash", "-c", "printf %s \"$1\" | \"$0\" --new new.toml", train_program(), answers}, 60,
                     place.path());
}

Finished dry_run(const NewInputFolder& place, const std::string& ranks) {
  return run_command({train_program(), "new.toml", "--dry-run", "--ranks", ranks}, 60, place.path());
}

/// "key = value" lines of --print-config, of these keys.
std::string values_of(const std::string& input, const NewInputFolder& place, const std::vector<std::string>& keys) {
  const Finished printed = run_command({train_program(), input, "--print-config"}, 30, place.path());
  REQUIRE(printed.code == 0);
  std::istringstream lines(printed.out);
  std::string found;
  for (std::string line; std::getline(lines, line);) {
    for (const std::string& key : keys) {
      if (line.starts_with(key + " = ")) found += line + "\n";
    }
  }
  return found;
}

}  // namespace

TEST_CASE("new input file: defaults alone make one that plans and trains") {
  const NewInputFolder place;
  const Finished made = answered(place, kDefaults);
  INFO(made.out << made.err);
  REQUIRE(made.code == 0);
  CHECK(error_lines(made) == 0);
  CHECK(mentions(made.err, "found: a vocabulary of 257, "));
  CHECK_FALSE(mentions(made.err, "\x1b"));
  CHECK(mentions(made.out, "next      megatron_train new.toml\n"));
  const Finished planned = dry_run(place, "1");
  REQUIRE(planned.code == 0);
  // The same plan, up to the memory that is free now.
  const std::size_t layout = planned.out.find("schedule");
  REQUIRE(layout != std::string::npos);
  CHECK(made.out.substr(0, layout) == planned.out.substr(0, layout));
  CHECK(mentions(planned.out, "this run can be trained as it is"));
  CHECK(mentions(contents_of(place.file("new.toml")), "\n# Width of the hidden state (integer)\nhidden_size = 128\n"));
  const Finished trained = run_command({train_program(), "new.toml", "--set", "train.steps=2"}, 60, place.path());
  INFO(trained.err);
  REQUIRE(trained.code == 0);
  CHECK(losses(place.file("runs/new")).size() == 2);
}

TEST_CASE("new input file: each family, on several ranks") {
  const std::string family = GENERATE("gpt", "bert", "t5");
  CAPTURE(family);
  const NewInputFolder place;
  const std::string sizes = family == "t5" ? "\n\n\n\n\n\n\n" : "\n\n\n\n\n";  // preset, layers, width, heads, lengths
  // Another path, whose shards are still to be made; their vocabulary; device; ranks.
  const Finished made = answered(place, family + "\n" + sizes + "data/later\n622\ncpu\n4\n" + kDefaults);
  INFO(made.out << made.err);
  REQUIRE(made.code == 0);
  CHECK(mentions(made.err, "warning: data/later-00000.h5: not found"));
  CHECK(mentions(made.out, "first     make the token shards of data.train"));
  CHECK(mentions(made.out, "next      megatron_launch 4 megatron_train new.toml\n"));
  CHECK(dry_run(place, "4").code == 0);
  CHECK(values_of("new.toml", place, {"family", "vocab_size", "device"}) ==
        "family = \"" + family + "\"\nvocab_size = 622\ndevice = \"cpu\"\n");
}

TEST_CASE("new input file: data of the wrong kind is refused as in training") {
  const NewInputFolder place;
  const Finished made = answered(place, "bert\n\n\n\n\n\ndata/corpus\ndata/later\n" + kDefaults);
  INFO(made.err);
  REQUIRE(made.code == 0);
  const Finished refused = run_command(
      {train_program(), "new.toml", "--set", "data.train=data/corpus", "--print-samples", "1"}, 30, place.path());
  REQUIRE(refused.code == 3);
  const std::string message = first_error(refused).substr(std::string("error: ").size());
  CHECK(mentions(made.err, "error: " + message.substr(0, 40)));
}

TEST_CASE("new input file: wherever the answers end, exit code 2 and no file") {
  const NewInputFolder place;
  for (const std::size_t count : {0, 1, 3, 7, 12, 18, 22}) {
    CAPTURE(count);
    const Finished ended = answered(place, std::string(count, '\n'));
    INFO(ended.err);
    CHECK(ended.code == 2);
    CHECK(mentions(ended.err, "the answers end at the question"));
    CHECK(ended.out.empty());
    CHECK(place.files().empty());
  }
}

TEST_CASE("new input file: an endless line ends the answers") {
  const NewInputFolder place;
  const Finished ended =
      run_command({"bash", "-c", "exec " + train_program() + " --new " + place.file("new.toml") + " < /dev/zero"}, 60);
  INFO(ended.err);
  CHECK(ended.code == 2);
  CHECK(place.files().empty());
}

TEST_CASE("new input file: an existing file is refused before the first question") {
  const NewInputFolder place;
  write_file(place.file("new.toml"), "mine\n");
  const Finished refused = answered(place, kDefaults);
  CHECK(refused.code == 2);
  CHECK(refused.err ==
        "error: --new new.toml: exists already and is never overwritten; give another name, or edit that "
        "file\n");
  CHECK(contents_of(place.file("new.toml")) == "mine\n");
  for (const Command& command :
       {Command{train_program(), input_file(), "--new", place.file("b.toml")},
        Command{train_program(), "--new", place.file("b.toml"), "--dry-run"}, Command{train_program(), "--new", ""}}) {
    CHECK(run_command(command).code == 2);
  }
  CHECK(mentions(run_command(launched(2, {train_program(), "--new", place.file("b.toml")})).err,
                 "start it without a launcher"));
  CHECK(place.files() == std::vector<std::string>{"new.toml"});
}

TEST_CASE("new input file: on GPUs the defaults are the planner's best layout") {
  const NewInputFolder place;
  // Preset, length, data, vocabulary, device, ranks, hardware; all else by default.
  const Finished made = answered(place, "gpt\ngpt3-1.3b\n\ndata/later\n50257\ncuda\n16\na100\na100-sxm\n" + kDefaults);
  INFO(made.err);
  REQUIRE(made.code == 0);
  CHECK(mentions(made.err, "error: --hardware a100: no such machine is known"));
  CHECK(mentions(made.err, "The defaults below are the fastest of "));
  const Finished best = run_command(
      {MEGATRON_PLAN, "new.toml", "--hardware", "a100-sxm", "--ranks", "16", "--results", "1", "--write", "best.toml"},
      60, place.path());
  INFO(best.err);
  REQUIRE(best.code == 0);
  const std::vector<std::string> keys = {"tensor",   "pipeline",         "virtual_stages", "sequence_parallel",
                                         "schedule", "micro_batch_size", "mode",           "share"};
  const std::string layout = values_of("best.toml", place, keys);
  CHECK(values_of("new.toml", place, keys) == layout);
  CHECK(std::count(layout.begin(), layout.end(), '\n') == 8);
  CHECK(!mentions(layout, "share = \"none\""));
}

TEST_CASE("new input file: on a terminal Ctrl-C writes nothing, nor does Ctrl-D") {
  const NewInputFolder place;
  PseudoTerminal terminal;
  const tcflag_t modes = terminal.modes();
  const bool interrupts = GENERATE(true, false);
  const pid_t child = terminal.start({train_program(), "--new", "new.toml"}, place.path());
  CHECK(terminal.wait_for("\x1b[1mModel\x1b[0m"));
  CHECK(terminal.wait_for("[gpt]\r\n> "));
  CHECK(terminal.modes() == modes);
  terminal.type("gpt\n");
  CHECK(terminal.wait_for("[none]\r\n> "));
  pause_milliseconds(200);  // until it waits
  terminal.type(interrupts ? "gpt2\x03" : "\x04");
  CHECK(terminal.wait_for(interrupts ? "nothing is written" : "> \r\nerror: --new new.toml: the answers end"));
  CHECK(PseudoTerminal::exit_code(child) == (interrupts ? 128 + SIGINT : 2));
  CHECK(place.files().empty());
}

TEST_CASE("new input file: a signal while it waits for a pipe writes nothing") {
  const NewInputFolder place;
  const Finished ended = run_command(
      {"bash", "-c",
       "exec 3> >(exec \"$0\" --new new.toml 2> err); pid=$!; until grep -aq family err; do sleep 0.1; done; "
       "kill -INT $pid; wait $pid",
       train_program()},
      60, place.path());
  CHECK(ended.code == 128 + SIGINT);
  CHECK(mentions(contents_of(place.file("err")), "nothing is written"));
  CHECK(place.files() == std::vector<std::string>{"err"});
}

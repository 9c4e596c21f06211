// The tools where their output is not read, where their ranks see other files, and where inputs are no files.
#include <sys/stat.h>

#include "faults/checks.h"
#include "faults/runs.h"
#include "support/catch.h"

namespace fs = std::filesystem;

namespace {

Finished redirected(const Command& command, const std::string& redirection) {
  return in_shell("exec " + quoted(command) + redirection);
}

std::string stories(const TemporaryFolder& folder, const std::string& name, const std::string& seed) {
  const std::string path = folder.file(name);
  done(preprocess({"sample-corpus", "--output", path, "--megabytes", "0.2", "--seed", seed}));
  return path;
}

}  // namespace

TEST_CASE("tools: they work with the same exit codes without a standard error", "[fault-65]") {
  const TemporaryFolder folder;
  const std::string text = stories(folder, "text.jsonl", "1"), set = folder.file("set");
  const std::string model = folder.file("model"), target = folder.file("target");
  const Command make = preprocess({"--input", text, "--output", set});
  done(make);
  done({checkpoint_program(), "export", straight_run(kOneRank), model, "--no-comparison"});
  std::string config = contents_of(model + "/config.json");
  config.replace(config.find("\"megatron_train\""), 16, "\"somebody_else\"");  // so that there is something to warn of
  write_file(model + "/config.json", config);
  const std::string shard = contents_of(set + "-00000.h5");
  for (const char* stream : {"2>&-", "2>/dev/full", "2> >(true)"}) {
    CAPTURE(stream);
    CHECK(redirected(make, stream).code == 0);  // it would say that the set exists already
    CHECK((contents_of(set + "-00000.h5") == shard));
    CHECK(redirected(preprocess({"--input", folder.file("absent.jsonl"), "--output", set}), stream).code == 3);
    CHECK(redirected({checkpoint_program(), "import", model, target, "--no-comparison"}, stream).code == 0);
    done({checkpoint_program(), "verify", target});
    fs::remove_all(target);
  }
}

TEST_CASE("tools: ranks that see other files are found before anything is written", "[fault-69]") {
  const TemporaryFolder folder;
  const std::string text = contents_of(stories(folder, "text.jsonl", "1"));
  const std::string shard = folder.file("set-00000.h5"), there = folder.file("node1/text/a.jsonl");
  for (const char* node : {"node0/text", "node1/text"}) {
    fs::create_directories(folder.file(node));
    write_file(folder.file(node) + std::string("/a.jsonl"), text);
  }
  const auto run = [&] {  // each rank in its own folder, as with local disks of the nodes
    return run_command(launched(2, {"bash", "-c", "cd '" + folder.path() + "'/node$OMPI_COMM_WORLD_RANK; exec \"$@\"",
                                    "bash", preprocess_program(), "--input", "text", "--output", folder.file("set")}),
                       60);
  };
  const auto refused = [&](const std::string& part) {
    const Finished finished = run();
    INFO(finished.err);
    CHECK(finished.code == 3);
    CHECK(mentions(finished.err, "rank 1 on "));
    CHECK(mentions(finished.err, part));
    CHECK(error_lines(finished) == 1);
    CHECK_FALSE(fs::exists(shard));
  };
  const auto change = [&](std::size_t at) {
    std::string other = text;
    other[other.find("the", at)] = 'T';
    write_file(there, other);
  };
  const fs::file_time_type when = fs::last_write_time(folder.file("node0/text/a.jsonl"));
  write_file(there, text + "\n");
  refused("text/a.jsonl has 2");
  change(100);
  fs::last_write_time(there, when);
  refused("text/a.jsonl has other contents");
  change(text.size() / 2);  // where no piece is hashed
  fs::last_write_time(there, when + std::chrono::seconds(1));
  refused("an input file has other contents");
  write_file(there, text);
  write_file(folder.file("node1/text/b.jsonl"), text);
  refused("2 files instead of 1");
  fs::remove(folder.file("node1/text/b.jsonl"));
  fs::last_write_time(there, when + std::chrono::seconds(1));  // copied at another time
  const Finished finished = run();
  INFO(finished.err);
  CHECK(finished.code == 0);
  CHECK(fs::exists(shard));
}

TEST_CASE("named pipes as inputs of the tools are refused, and not waited for", "[fault-55]") {
  const TemporaryFolder folder;
  const std::string pipe = folder.file("pipe.json"), text = stories(folder, "text.jsonl", "1");
  REQUIRE(::mkfifo(pipe.c_str(), 0600) == 0);
  const auto refused = [&](const Command& command, int code) {
    CAPTURE(command);
    const Finished finished = run_command(command, 20);
    INFO(finished.err);
    CHECK_FALSE(finished.timed_out);
    CHECK(finished.code == code);
    CHECK(error_lines(finished) == 1);
    CHECK(mentions(finished.err, "not a regular file"));
  };
  const std::string set = folder.file("set");
  refused(preprocess({"--input", pipe, "--output", set}), 3);
  refused(preprocess({"--input", text, "--output", set, "--tokenizer", "gpt2", "--vocab-file", pipe}), 3);
  refused(preprocess({"train-tokenizer", "--input", pipe, "--output", folder.file("vocabulary")}), 3);
  fs::rename(pipe, folder.file("set.idx"));
  write_file(folder.file("set.bin"), "");
  refused(preprocess({"import", set, folder.file("out"), "--tokenizer", "byte"}), 3);
  fs::rename(folder.file("set.idx"), folder.file("set-00000.h5"));
  refused(preprocess({"merge", set, folder.file("out")}), 3);
  fs::create_directories(folder.file("model"));
  fs::rename(folder.file("set-00000.h5"), folder.file("model/config.json"));
  refused({checkpoint_program(), "import", folder.file("model"), folder.file("out")}, 4);
}

TEST_CASE("tools: unusable names are refused with the reason and nothing changes", "[fault-46]") {
  const TemporaryFolder folder;
  const std::string text = stories(folder, "text.jsonl", "1"), run = straight_run(kOneRank);
  const std::string model = folder.file("model"), long_name = folder.file(std::string(250, 'y'));
  done({checkpoint_program(), "export", run, model, "--no-comparison"});
  fs::create_directory(folder.file("empty"));
  write_file(folder.file("none.jsonl"), "");
  const auto before = all_files(folder.path()), run_before = all_files(run);
  struct Case {
    Command command;
    int code;
    std::string part;
  };
  const auto shards = [&](const std::string& input, const std::string& output) {
    return preprocess({"--input", input, "--output", output});
  };
  const auto merge = [&](const std::string& source, const std::string& target) {
    return Command{checkpoint_program(), "merge", source, target};
  };
  const std::string set = folder.file("set"), step = checkpoint(run, 8);
  const std::vector<Case> cases{
      {shards("", set), 2, "--input \"\""},
      {shards(folder.file("absent.jsonl"), set), 3, "absent.jsonl"},
      {shards(folder.file("empty"), set), 3, "no files are in this folder"},
      {shards(folder.file("none.jsonl"), set), 3, "no text was found"},
      {shards(text + "/x.jsonl", set), 3, "Not a directory"},
      {shards(text, ""), 2, "--output"},
      {shards(text, folder.file("empty/")), 2, "prefix of file names"},
      {shards(text, folder.file("empty/..")), 2, "prefix of file names"},
      {shards(text, text + "/set"), 7, "cannot make this folder"},
      {shards(text, "/proc/set"), 7, "/proc"},
      {shards(text, long_name), 7, "File name too long"},
      {preprocess({"--input", text, "--output", set, "--shard-bytes", "-5"}), 2, "--shard-bytes"},
      {preprocess({"sample-corpus", "--output", "/dev/null", "--megabytes", "0.001"}), 2, "not a regular file"},
      {preprocess({"sample-corpus", "--output", folder.file("empty"), "--megabytes", "0.001"}), 2,
       "not a regular file"},
      {merge(folder.file("empty"), set), 4, "name a run directory or a checkpoint folder"},
      {merge(model, set), 4, "megatron_checkpoint import"},
      {merge(text, set), 4, "is no folder"},
      {merge(run, run), 2, "is there already"},
      {merge(run, step + "/inside"), 2, "inside the checkpoint"},
      {merge(run, text + "/set"), 7, "cannot make this folder"},
      {merge(run, "/proc/set"), 7, "/proc"},
      {merge(run, long_name), 7, "File name too long; choose a shorter name"},
  };
  for (const Case& wrong : cases) {
    CAPTURE(wrong.command);
    const Finished finished = run_command(wrong.command);
    INFO(finished.err);
    CHECK(finished.code == wrong.code);
    CHECK(mentions(finished.err, wrong.part));
    CHECK(error_lines(finished) == 1);
  }
  CHECK((all_files(folder.path()) == before));
  CHECK((all_files(run) == run_before));
  CHECK(fs::is_character_file("/dev/null"));
  for (const std::string name : {"na me", "new\nline", "-dash", "umläut", "a/b/c"}) {
    CAPTURE(name);
    const Finished made = run_command(preprocess({"--input", text, "--output=" + name}), 60, folder.path());
    INFO(made.err);
    CHECK(made.code == 0);
    CHECK(fs::exists(folder.file(name + "-00000.h5")));
  }
}

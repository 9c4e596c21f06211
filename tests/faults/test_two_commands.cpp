// Two commands that are started together on one target: one makes it, the other is refused, or makes it after that.
#include <functional>

#include "faults/checks.h"
#include "faults/runs.h"
#include "support/catch.h"

namespace fs = std::filesystem;

namespace {

using Files = std::map<std::string, std::string>;

/// MEGATRON_PAIRS=N: ten times as many with 10.
int pairs(int usual) {
  const char* more = std::getenv("MEGATRON_PAIRS");
  return more == nullptr ? usual : usual * std::max(1, std::atoi(more));
}

/// Sources of all commands, and an older set.
struct Sources {
  TemporaryFolder folder;
  std::string a = folder.file("a"), b = folder.file("b"), older = folder.file("older");

  Sources() {
    for (const auto& [set, seed] : {std::pair(a, "1"), std::pair(b, "2"), std::pair(older, "3")}) {
      done({preprocess_program(), "sample-corpus", "--output", set + ".jsonl", "--megabytes", "0.05", "--seed", seed});
      done({preprocess_program(), "--input", set + ".jsonl", "--output", set, "--shard-bytes", "9000"});
      done({preprocess_program(), "export", set, set});
    }
  }
  static void done(const Command& command) {
    const Finished finished = run_command(command);
    INFO(finished.out << finished.err);
    REQUIRE(finished.code == 0);
  }
};

const Sources& sources() {
  static const Sources made;
  return made;
}

/// Contents by the names that files have in the folder.
Files left_in(const std::string& folder) {
  Files files;
  for (const auto& [path, contents] : all_files(folder)) files[path.substr(folder.size())] = contents;
  return files;
}

/// The folder's files once `command` has been run in it alone.
Files alone(const std::function<void(const std::string& folder)>& prepare, const Command& command) {
  const TemporaryFolder folder;
  prepare(folder.path());
  const Finished finished = run_command(command, 60, folder.path());
  INFO(finished.out << finished.err);
  REQUIRE(finished.code == 0);
  return left_in(folder.path());
}

/// Pairs of commands, which write the same target in the folder they are started in; a refused one ends with 7, or
/// where it came too late to find nothing there with 2.
void compete(
    int count, const Command& first, const Command& second,
    const std::function<void(const std::string& folder)>& prepare = [](const std::string&) {}) {
  const Files of_first = alone(prepare, first), of_second = alone(prepare, second);
  REQUIRE((of_first != of_second));
  int refused = 0;
  for (int pair = 0; pair < pairs(count); ++pair) {
    const TemporaryFolder folder;
    prepare(folder.path());
    Process one(first, folder.path()), other(second, folder.path());
    const Finished a = one.wait(), b = other.wait();
    CAPTURE(pair, a.code, b.code);
    INFO(a.err << b.err);
    const Files left = left_in(folder.path());
    CHECK((a.code == 0 || b.code == 0));
    for (const Finished& finished : {a, b}) {
      if (finished.code == 0) continue;
      ++refused;
      const bool meanwhile = finished.code == 7 && mentions(finished.err, "is being written by");
      CHECK((meanwhile || (finished.code == 2 && mentions(finished.err, "already"))));
    }
    const bool is_first = left == of_first, is_second = left == of_second;
    CHECK((is_first || is_second));
    if (a.code != 0) CHECK(is_second);
    if (b.code != 0) CHECK(is_first);
  }
  WARN(refused << " of " << pairs(count) << " pairs: one was refused");
}

Command checkpoint_tool(std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), checkpoint_program());
  return arguments;
}

void copy_older(const std::string& folder) {
  for (const auto& entry : fs::directory_iterator(sources().folder.path())) {
    const std::string name = entry.path().filename().string();
    if (name.starts_with("older")) fs::copy(entry.path(), folder + "/new" + name.substr(5));
  }
}

}  // namespace

TEST_CASE("two commands: a set of shards that both write is whole", "[fault-67]") {
  const Sources& from = sources();
  const auto text = [&](const std::string& set) {
    return preprocess({"--input", set + ".jsonl", "--output", "new", "--shard-bytes", "9000", "--overwrite"});
  };
  compete(12, text(from.a), text(from.b), copy_older);
  compete(4, launched(2, text(from.a)), launched(2, text(from.b)), copy_older);
  compete(4, preprocess({"--input", from.a + ".jsonl", "--output", "new"}),
          preprocess({"--input", from.b + ".jsonl", "--output", "./new"}));
  compete(4, preprocess({"merge", from.a, from.b, "new", "--overwrite"}),
          preprocess({"merge", from.b, from.a, "new", "--overwrite"}), copy_older);
  compete(4, preprocess({"import", from.a, "new", "--tokenizer", "byte", "--overwrite"}), text(from.b), copy_older);
  compete(4, preprocess({"export", from.a, "out"}), preprocess({"export", from.b, "out"}));
}

TEST_CASE("two commands: a checkpoint or model that both make is whole", "[fault-67]") {
  const std::string run = straight_run(kOneRank), early = checkpoint(run, 1);
  compete(3, checkpoint_tool({"merge", run, "out"}), checkpoint_tool({"merge", early, "out/"}));
  compete(3, checkpoint_tool({"reshape", run, "out", "--tensor", "2", "--pipeline", "2"}),
          checkpoint_tool({"reshape", early, "out", "--tensor", "1", "--pipeline", "2"}));
  compete(3, checkpoint_tool({"export", run, "out", "--no-comparison"}),
          checkpoint_tool({"export", early, "out", "--no-comparison"}));
  const TemporaryFolder folder;
  const std::string model = folder.file("model");
  Sources::done(checkpoint_tool({"export", run, model, "--no-comparison"}));
  compete(3, checkpoint_tool({"import", model, "out", "--no-comparison"}), checkpoint_tool({"merge", early, "out"}));
}

TEST_CASE("a killed command leaves its target unlocked", "[fault-67]") {
  const TemporaryFolder folder;
  const Sources& from = sources();
  const std::string lock = folder.file(".new.lock"), slow = folder.file("slow.jsonl");
  Sources::done({preprocess_program(), "sample-corpus", "--output", slow, "--megabytes", "40"});
  Process killed(preprocess({"--input", slow, "--output", "new", "--shard-bytes", "9000"}), folder.path());
  for (int i = 0; i < kBusy * 4000 && !fs::exists(lock); ++i) pause_milliseconds(5);
  REQUIRE(fs::exists(lock));
  const Command command = preprocess({"--input", from.a + ".jsonl", "--output", "new", "--shard-bytes", "9000"});
  const Finished refused = run_command(command, 60, folder.path());
  INFO(refused.err);
  CHECK(refused.code == 7);
  CHECK(mentions(refused.err, "new is being written by process " + std::to_string(killed.pid()) + " on "));
  killed.signal(SIGKILL);
  CHECK(killed.wait().code == 128 + SIGKILL);
  CHECK(fs::exists(lock));
  fs::remove(slow);
  const Finished next = run_command(command, 60, folder.path());
  INFO(next.err);
  CHECK(next.code == 0);
  CHECK((left_in(folder.path()) == alone([](const std::string&) {}, command)));  // and nothing of the other's stays
}

// Background saves (checkpoint.async) of whole programs: on a slow disk, on one that is full, and when the run
// is asked to stop meanwhile.
#include <filesystem>
#include <optional>

#include "faults/checks.h"
#include "faults/runs.h"
#include "faults/sentence_corpus.h"
#include "support/catch.h"
#include "support/parts_of_text.h"

namespace fs = std::filesystem;
using megatron::test::times_in;

namespace {

const Settings kBeside = {"checkpoint.async=true", "train.evaluate_every=0", "checkpoint.every_steps=2"};

/// `command` on a disk that needs `milliseconds` to say that a file is on it; nothing where that cannot be done.
std::optional<Command> on_slow_disk(int milliseconds, const Command& command) {
  if (run_command({"strace", "-qq", "-o", "/dev/null", "true"}).code != 0) {
    WARN("no strace here: slow disks are not tested");
    return {};
  }
  Command whole = {"strace",      "-f",        "-qq",
                   "-o",          "/dev/null", "-e",
                   "trace=fsync", "-e",        "inject=fsync:delay_enter=" + std::to_string(1000 * milliseconds)};
  whole.insert(whole.end(), command.begin(), command.end());
  return whole;
}

}  // namespace

TEST_CASE("background saves: on eight ranks, the same files as foreground saves", "[fault-26]") {
  const TemporaryFolder folder;
  const std::string run = folder.file("run");
  const Finished finished =
      train(kCube, run, {"checkpoint.async=true", "checkpoint.every_steps=1", "checkpoint.keep_last=0"});
  INFO(finished.out << finished.err);
  CHECK(saved_steps(run) == saved_steps(straight_run(kCube)));
  for (const std::int64_t step : saved_steps(run)) {
    CAPTURE(step);
    CHECK(same_rank_files(run, straight_run(kCube), step));
  }
  CHECK(numbers(run) == numbers(straight_run(kCube)));
  CHECK(times_in(finished.out, "in the background, for which training waited") == kPlannedSteps - 1);
  CHECK_FALSE(has_temporary_folder(run));
}

TEST_CASE("a slow disk does not hold up the training until it is to save again", "[fault-26]") {
  const TemporaryFolder folder;
  const std::string run = folder.file("run"), straight = folder.file("straight");
  const Settings settings = {"train.steps=12", "train.evaluate_every=0", "checkpoint.every_steps=6",
                             "checkpoint.keep_last=0"};
  const auto command = on_slow_disk(700, training(kOneRank, run, extended(settings, {"checkpoint.async=true"})));
  if (!command) return;
  Process process(*command);
  // All steps up to the next save are done while the first is far from being committed.
  REQUIRE(wait_for_lines(process, run, 11));
  CHECK(saved_steps(run).empty());
  CHECK(has_temporary_folder(run));
  const Finished finished = process.wait(60);
  INFO(finished.out << finished.err);
  CHECK(finished.code == 0);
  CHECK(mentions(finished.out, "for the checkpoint of step 6, which was still being written"));
  CHECK(saved_steps(run) == std::vector<std::int64_t>{6, 12});
  train(kOneRank, straight, settings);
  CHECK(same_rank_files(run, straight, 6));
  CHECK(same_rank_files(run, straight, 12));
  CHECK(numbers(run) == numbers(straight));
}

TEST_CASE("background saves: a stop waits for a save and saves the last step", "[fault-26][fault-27]") {
  const TemporaryFolder folder;
  const std::string run = folder.file("run");
  const auto command =
      on_slow_disk(300, training(kOneRank, run,
                                 {"train.steps=1000000", "train.evaluate_every=0", "checkpoint.every_steps=3",
                                  "checkpoint.async=true", "checkpoint.keep_last=0"}));
  if (!command) return;
  Process process(*command);
  REQUIRE(wait_for_lines(process, run, 4));
  const std::vector<pid_t> ranks = process.children("megatron_train");
  REQUIRE(ranks.size() == 1);
  REQUIRE(::kill(ranks[0], SIGUSR1) == 0);
  const Finished finished = process.wait(60);
  INFO(finished.out << finished.err);
  CHECK(finished.code == 75);
  const std::vector<std::int64_t> saved = saved_steps(run);
  REQUIRE(saved.size() >= 2);
  CHECK(saved.front() == 3);
  CHECK(saved.back() == metrics_lines(run));
  CHECK_FALSE(has_temporary_folder(run));
}

TEST_CASE("background saves: a failed first save ends the run with 7", "[fault-26][fault-45]") {
  const TemporaryFolder folder;
  const std::string run = folder.file("run");
  std::string words;
  for (const std::string& word : training({2, 1, 1}, run, extended(kBeside, {"model.hidden_size=256"}))) {
    words += "'" + word + "' ";
  }
  const Finished finished = run_command({"bash", "-c", "ulimit -f 17500; exec " + words}, 60);
  INFO(finished.out << finished.err);
  CHECK(finished.code == 7);
  CHECK(error_lines(finished) == 1);
  CHECK(mentions(finished.err, "File too large"));
  CHECK(saved_steps(run).empty());
  CHECK_FALSE(has_temporary_folder(run));
}

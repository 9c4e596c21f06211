// How runs end: what is kept of them, train.stop_after, and runs that are complete and started again.
#include "faults/runs.h"
#include "support/catch.h"

namespace fs = std::filesystem;

namespace {

Command with_option(Command command, const std::string& option) {
  command.push_back(option);
  return command;
}

}  // namespace

TEST_CASE("a run without [checkpoint] saves its last step") {
  const TemporaryFolder folder;
  const std::string directory = folder.file("run");
  const Finished plan = run_command(with_option(training(kOneRank, directory), "--dry-run"));
  CHECK(mentions(plan.out, "saves     every 30 minutes, at the end"));
  CHECK(mentions(plan.out, "failure   costs at most 30 minutes of work, and the step under way"));
  CHECK(mentions(plan.out, "; a save takes about "));
  const Finished finished = train(kOneRank, directory);
  CHECK(mentions(finished.out, "saves     every 30 minutes, at the end"));
  CHECK(saved_steps(directory) == std::vector<std::int64_t>{kPlannedSteps});
  const Finished text = run_command({generate_program(), directory, "--prompt", "Once", "--max-new-tokens", "4"});
  CHECK(text.code == 0);
}

TEST_CASE("every_steps = never: plan, banner and last line say so") {
  const TemporaryFolder folder;
  const std::string directory = folder.file("run");
  const Settings never = {"checkpoint.every_steps=never", "train.steps=2"};
  const std::string planned = "saves     never: the trained model is NOT kept (checkpoint.every_steps = \"never\")";
  CHECK(mentions(run_command(with_option(training(kOneRank, directory, never), "--dry-run")).out, planned));
  CHECK_FALSE(fs::exists(directory));
  const Finished finished = train(kOneRank, directory, never);
  CHECK(mentions(finished.out, planned));
  CHECK(mentions(last_line(finished.err), "the trained model is not kept: checkpoint.every_steps = \"never\""));
  CHECK(mentions(last_line(contents_of(directory + "/run.log")), "the trained model is not kept"));
  CHECK_FALSE(fs::exists(directory + "/checkpoints"));

  const auto before = all_files(directory);
  const Finished again = train(kOneRank, directory, {never[0], never[1], "learning_rate.peak=0.25"});
  CHECK(mentions(again.out, "already complete: " + directory + " has 2 steps, and no checkpoint"));
  CHECK(mentions(again.out, "learning_rate.peak = 0.25 (was 0.001)"));
  CHECK(all_files(directory) == before);
  // Whatever is asked for now: its metrics are all there is of it.
  CHECK(mentions(train(kOneRank, directory, {"train.steps=2"}).out, "already complete"));
  CHECK(all_files(directory) == before);
}

TEST_CASE("train.stop_after: the whole run's schedule, in parts") {
  const TemporaryFolder folder;
  const std::string directory = folder.file("run");
  const Settings settings = {"learning_rate.decay=linear"};
  const auto until = [&](const std::string& step) {
    return train(kCube, directory, {settings[0], "train.stop_after=" + step});
  };
  const std::string straight = folder.file("straight");
  train(kCube, straight, settings);

  const Finished first = until("3");
  CHECK(mentions(
      last_line(first.out),
      "ended after step 3 of 8, as train.stop_after = 3 says; to continue, raise or remove it and run the same "
      "command again"));
  CHECK(saved_steps(directory) == std::vector<std::int64_t>{3});
  const auto before = all_files(directory + "/checkpoints");
  CHECK(mentions(until("3").out, "ended after step 3 of 8"));
  CHECK(all_files(directory + "/checkpoints") == before);
  until("4");  // an evaluation follows this step
  CHECK(saved_steps(directory) == std::vector<std::int64_t>{3, 4});
  train(kCube, directory, settings);
  CHECK(numbers(directory) == numbers(straight));
  CHECK(same_rank_files(directory, straight, kPlannedSteps));
}

TEST_CASE("train.stop_after: a save in the background is complete at the end") {
  const TemporaryFolder folder;
  const std::string directory = folder.file("run");
  train(kCube, directory, {"checkpoint.async=true", "checkpoint.every_steps=5", "train.stop_after=3"});
  CHECK(saved_steps(directory) == std::vector<std::int64_t>{3});
}

TEST_CASE("train.stop_after in a run that keeps nothing") {
  const TemporaryFolder folder;
  const std::string directory = folder.file("run");
  const Finished finished = train(kOneRank, directory, {"checkpoint.every_steps=never", "train.stop_after=2"});
  CHECK(numbers(directory, "train").size() == 2);
  CHECK(mentions(last_line(finished.err), "the trained model is not kept"));
}

TEST_CASE("a finished run with changed keys: which, and what to do") {
  const TemporaryFolder folder;
  const std::string directory = folder.file("run");
  train(kOneRank, directory, {"train.steps=2"});
  const auto before = all_files(directory);
  const Finished same = train(kOneRank, directory, {"train.steps=2"});
  CHECK(mentions(same.out, "already complete: " + checkpoint(directory, 2) + " is at step 2 of 2"));
  CHECK_FALSE(mentions(same.out, "These keys differ"));
  CHECK(mentions(same.out, "raise train.steps"));
  const Finished changed = train(kOneRank, directory, {"train.steps=2", "learning_rate.peak=0.25", "model.bias=false"});
  for (const char* part :
       {"These keys differ from that run's and have no effect on it:", "model.bias = false (was true)",
        "learning_rate.peak = 0.25 (was 0.001)", "name another run.directory", "--fresh"}) {
    CAPTURE(part);
    CHECK(mentions(changed.out, part));
  }
  CHECK(all_files(directory) == before);
}

TEST_CASE("--fresh starts over in a directory with a suffix") {
  const TemporaryFolder folder;
  const std::string directory = folder.file("run");
  const Settings settings = {"train.steps=2", "train.evaluate_every=0"};
  const auto fresh = [&](const Layout& layout) {
    const Finished finished = run_command(with_option(training(layout, directory, settings), "--fresh"));
    INFO(finished.out << finished.err);
    CHECK(finished.code == 0);
    return finished.out;
  };
  CHECK_FALSE(mentions(fresh(kOneRank), "--fresh"));  // nothing is there yet
  CHECK(saved_steps(directory) == std::vector<std::int64_t>{2});
  const auto before = all_files(directory);
  write_file(folder.file("run_2"), "");
  CHECK(mentions(fresh(kCube), "run.directory = " + directory + "_3 (--fresh: " + directory + " has a run already)"));
  CHECK(saved_steps(directory + "_3") == std::vector<std::int64_t>{2});
  CHECK(mentions(contents_of(directory + "_3/config.toml"), "directory = \"" + directory + "_3\""));
  CHECK(numbers(directory + "_3").size() == numbers(directory).size());
  fresh(kOneRank);
  CHECK(saved_steps(directory + "_4") == std::vector<std::int64_t>{2});
  CHECK(all_files(directory) == before);

  const Finished refused = run_command(with_option(with_option(training(kOneRank, directory), "--fresh"), "--dry-run"));
  CHECK(refused.code == 2);
  CHECK(mentions(refused.err, "--fresh starts a training run"));
}

TEST_CASE("every input file plans ten steps of itself") {
  for (const auto& entry : fs::directory_iterator(source_folder() + "/inputs")) {
    if (entry.path().extension() != ".toml") continue;
    CAPTURE(entry.path().string());
    const Finished plan =
        run_command({train_program(), entry.path().string(), "--set", "train.steps=10", "--dry-run"}, 120);
    INFO(plan.err);
    CHECK(plan.code == 0);
    CHECK(mentions(plan.out, "length    10 steps = "));
  }
}

TEST_CASE("a run shortened below its warm-up warns and trains") {
  const TemporaryFolder folder;
  std::string text = contents_of(input_file());
  text.replace(text.find("decay_steps"), 1, "# d");
  text.replace(text.find("warmup_steps = 2"), 16, "warmup_steps = 2000");
  write_file(folder.file("input.toml"), text);
  const Finished finished = run_command({train_program(), folder.file("input.toml"), "--set", "train.steps=2", "--set",
                                         "run.directory=" + folder.file("run")});
  INFO(finished.err);
  CHECK(finished.code == 0);
  CHECK(mentions(finished.err, "is not shorter than the run's 16 samples; it is shortened to 1, 1/10 of them"));
}

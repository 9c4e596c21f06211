// Ways to watch a run: TensorBoard's events, --watch, history.jsonl and report.html.
#include <fstream>
#include <nlohmann/json.hpp>

#include "faults/checks.h"
#include "faults/runs.h"
#include "support/catch.h"
#include "support/parts_of_text.h"
#include "support/pseudo_terminal.h"

namespace fs = std::filesystem;
using megatron::test::times_in;

namespace {

std::vector<std::string> event_files(const std::string& run) {
  std::vector<std::string> files;
  for (const auto& entry : fs::directory_iterator(run + "/tensorboard"))
    files.push_back(contents_of(entry.path().string()));
  return files;
}

}  // namespace

TEST_CASE("watching: a run leaves events and history and report and resumes add") {
  const TemporaryFolder folder;
  const std::string run = folder.file("run");
  train({1, 2, 1}, run, {"train.stop_after=4", "checkpoint.every_steps=2"});
  REQUIRE(event_files(run).size() == 1);
  CHECK(times_in(event_files(run)[0], "train/grad_norm") == 4);
  CHECK(times_in(event_files(run)[0], "validation/loss") == 1);
  std::string report = contents_of(run + "/report.html");
  CHECK(mentions(report, "Ended at train.stop_after, step 4 of 8"));
  CHECK(mentions(report, "stage 1"));
  train({1, 2, 1}, run, {"learning_rate.peak=2e-3"});
  CHECK(event_files(run).size() == 2);
  report = contents_of(run + "/report.html");
  CHECK(mentions(report, "Complete, step 8 of 8"));
  CHECK(mentions(report, "learning_rate.peak = 0.002 (was 0.001)"));
  CHECK(mentions(report, "2 ranks on 1 host"));
  const std::vector<nlohmann::json> history = lines_of(contents_of(run + "/history.jsonl"));
  REQUIRE(history.size() == 4);
  CHECK(history[1].at("how") == "ended at train.stop_after");
  CHECK(history[2].at("step") == 4);
  CHECK(history[3].at("bytes").at(0).at("name") == "predicted");
}

TEST_CASE("watching: reports and events of old runs are made afterwards") {
  const TemporaryFolder folder;
  const std::string run = folder.file("run"), page = folder.file("page.html");
  fs::create_directory(run);
  for (const char* file : {"metrics.jsonl", "config.toml", "run.log"}) {
    fs::copy_file(straight_run(kOneRank) + "/" + file, run + "/" + file);
  }
  expect({train_program(), "--report", run}, 0, {"wrote " + run + "/report.html"});
  CHECK(mentions(contents_of(run + "/report.html"), "There is no history.jsonl"));
  expect({train_program(), "--report", run, straight_run(kOneRank), "--output", page}, 0, {"wrote " + page});
  CHECK(mentions(contents_of(page), "2 runs compared"));
  expect({train_program(), "--tensorboard", run}, 0, {"lines of metrics to " + run + "/tensorboard"});
  REQUIRE(event_files(run).size() == 1);
  CHECK(times_in(event_files(run)[0], "train/grad_norm") == kPlannedSteps);
}

TEST_CASE("watching: two reports of one run at a time are both written") {
  const TemporaryFolder folder;
  const std::string run = folder.file("run");
  fs::create_directory(run);
  fs::copy_file(straight_run(kOneRank) + "/metrics.jsonl", run + "/metrics.jsonl");
  for (int pair = 0; pair < 5; ++pair) {
    Process first({train_program(), "--report", run}), second({train_program(), "--report", run});
    CHECK(first.wait(60).code == 0);
    CHECK(second.wait(60).code == 0);
  }
  CHECK(folder.files() == std::vector<std::string>{"metrics.jsonl", "report.html"});
  const std::string page = folder.file("page.html");
  const Command named = {train_program(), "--report", run, "--output", page};
  expect(named, 0);
  require_refused(run_command(named), 2, {"page.html: there is such a file", "--force"});
  // A comparison goes to this folder, where report.html may be another's.
  const Command compared = {train_program(), "--report", run, run},
                forced = {train_program(), "--report", run, run, "--force"};
  require_refused(Process(compared, run).wait(60), 2, {"--report report.html: there is such a file", "--force"});
  CHECK(Process(forced, run).wait(60).code == 0);
  CHECK(mentions(contents_of(run + "/report.html"), "2 runs compared"));
}

TEST_CASE("watching: folders without a run and conflicting options are 2") {
  const TemporaryFolder folder;
  const std::string nowhere = folder.file("nowhere");
  for (const char* option : {"--watch", "--report", "--tensorboard"}) {
    require_refused(run_command({train_program(), option, nowhere}), 2, {"no such run", nowhere});
    require_refused(run_command({train_program(), option, folder.path()}), 2, {"no such run"});
    require_refused(run_command({train_program(), input_file(), option, folder.path()}), 2, {"no input file"});
    require_refused(run_command({train_program(), option, folder.path(), "--dry-run"}), 2, {"do not go with them"});
  }
  require_refused(run_command({train_program(), "--watch", nowhere, "--report", nowhere}), 2, {"give one of them"});
  require_refused(run_command({train_program(), input_file(), "--output", "x.html"}), 2,
                  {"--output belongs to --report"});
  CHECK_FALSE(fs::exists(nowhere));
}

TEST_CASE("watching: without a terminal --watch prints a run's state once") {
  const Finished whole = expect({train_program(), "--watch", straight_run(kOneRank)}, 0,
                                {"100 %   Complete, step 8 of 8", "loss", "validation after step 8"});
  CHECK_FALSE(mentions(whole.out, "\x1b"));
  const TemporaryFolder folder;
  const std::string run = folder.file("run");
  fs::create_directory(run);
  write_file(run + "/metrics.jsonl", "{\"kind\":\"train\",\"step\":3,\"loss\":1.5}\n{\"kind\":");
  expect({train_program(), "--watch", run}, 0, {"At step 3", "loss 1.5000"});
}

TEST_CASE("watching: on a terminal --watch follows a run to its end or Ctrl-C") {
  const TemporaryFolder folder;
  const std::string run = folder.file("run");
  Process training_run(training(kOneRank, run, {"train.steps=100000", "checkpoint.every_steps=\"never\""}));
  REQUIRE(wait_for_lines(training_run, run, 5));
  PseudoTerminal first(100), second(100);
  const auto watch = [&](const PseudoTerminal& terminal) {
    const pid_t child = ::fork();
    if (child != 0) return child;
    ::setsid();
    for (const int descriptor : {0, 1, 2}) ::dup2(terminal.program(), descriptor);
    ::setenv("TERM", "xterm", 1);
    ::setenv("LC_ALL", "C.UTF-8", 1);
    ::setenv("NO_COLOR", "1", 1);
    ::execl(train_program().c_str(), "megatron_train", "--watch", run.c_str(), nullptr);
    ::_exit(127);
  };
  const pid_t interrupted = watch(first), follower = watch(second);
  CHECK(first.wait_for("Running, step"));
  CHECK(first.wait_for("to go"));
  CHECK(first.wait_for("\xe2\x94\x82"));  // the curve's wall
  ::kill(interrupted, SIGINT);
  int status = -1;
  ::waitpid(interrupted, &status, 0);
  CHECK(status == 0);
  CHECK_FALSE(mentions(first.printed(), "\x1b[32m"));
  CHECK(second.wait_for("Running, step"));
  training_run.signal(SIGTERM);
  CHECK(training_run.wait(60).code == 75);
  CHECK(second.wait_for("Stopped on SIGTERM"));
  ::waitpid(follower, &status, 0);
  CHECK(status == 0);
}

TEST_CASE("watching: run.tensorboard = false writes no events") {
  const TemporaryFolder folder;
  train(kOneRank, folder.file("run"), {"train.stop_after=1", "run.tensorboard=false"});
  CHECK_FALSE(fs::exists(folder.file("run") + "/tensorboard"));
}

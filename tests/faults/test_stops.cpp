// Runs that are asked to stop from outside: by signals, time limits, a file.
#include <csignal>
#include <ctime>
#include <filesystem>

#include "faults/endless_runs.h"
#include "support/catch.h"

namespace {

/// Whether `signal` is in one of a process' sets: "SigCgt:" has a handler, "ShdPnd:" has not been handled yet.
bool signal_is_in(const char* set, pid_t process, int signal) {
  std::ifstream status("/proc/" + std::to_string(process) + "/status");
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with(set)) return ((std::stoull(line.substr(7), nullptr, 16) >> (signal - 1)) & 1) != 0;
  }
  return false;
}

/// Whether a process would notice SIGUSR1 and SIGTERM: before main it does what any process does, it dies.
bool listens(pid_t process) {
  return signal_is_in("SigCgt:", process, SIGUSR1) && signal_is_in("SigCgt:", process, SIGTERM);
}

/// Waits until all eight ranks have been started that far.
std::vector<pid_t> listening_ranks(Process& process) {
  for (int waited = 0; waited < kBusy * 5000 && process.running(); ++waited) {
    const std::vector<pid_t> ranks = process.children("megatron_train");
    if (ranks.size() == 8 && std::all_of(ranks.begin(), ranks.end(), listens)) return ranks;
    pause_milliseconds(2);
  }
  return {};
}

}  // namespace

TEST_CASE("a stop signal saves at the next step and leaves with 75", "[fault-27]") {
  struct Way {
    const char* name;
    int signal;
    bool to_one_rank;
    const char* words;
  };
  const Way ways[] = {{"SIGUSR1 to the launcher", SIGUSR1, false, "SIGUSR1"},
                      {"SIGTERM to the launcher", SIGTERM, false, "SIGTERM"},
                      {"SIGINT to the launcher", SIGINT, false, "Ctrl-C"},
                      {"SIGTERM to one rank", SIGTERM, true, "SIGTERM"}};
  for (const Way& way : ways) {
    CAPTURE(way.name);
    const TemporaryFolder folder;
    const std::string directory = folder.file("run");
    Process process(endless(directory, "0"));
    REQUIRE(wait_for_lines(process, directory, 3));
    if (way.to_one_rank) {
      const std::vector<pid_t> ranks = process.children("megatron_train");
      REQUIRE(ranks.size() == 8);
      REQUIRE(::kill(ranks[5], way.signal) == 0);
    } else {
      process.signal(way.signal);
    }
    const Finished finished = process.wait(30);
    INFO(finished.out << finished.err);
    CHECK(finished.code == 75);
    CHECK(mentions(finished.out, std::string("stopped on ") + way.words + " after step"));
    CHECK(finished.err.ends_with(
        "launch: the job stopped early and has a checkpoint (exit code 75); the same command continues it\n"));
    CHECK(error_lines(finished) == 0);
    REQUIRE(saved_steps(directory).size() == 1);  // every_steps = 0: this is the signal's
    CHECK(saved_steps(directory).back() == static_cast<std::int64_t>(numbers(directory, "train").size()));
    const std::int64_t last = require_resumable(directory);
    if (way.to_one_rank) require_same_weights(directory, last);
  }
}

TEST_CASE("stop signals: one at any moment of main gives one checkpoint and 75", "[fault-27]") {
  const TemporaryFolder folder;
  const std::string directory = folder.file("run");
  std::mt19937 random = seeded();
  // Half of the time is evaluating and saving, and half of the moments come before the first step.
  const Command command = training(
      kCube, directory, {kEndless, "train.evaluate_every=2", "train.evaluate_steps=10", "checkpoint.every_steps=3"});
  for (int round = 0; round < times("MEGATRON_STOPS", 8); ++round) {
    const std::int64_t before = saved_steps(directory).empty() ? 0 : saved_steps(directory).back();
    Process process(command);
    const std::vector<pid_t> ranks = listening_ranks(process);
    REQUIRE(ranks.size() == 8);
    pause_milliseconds(static_cast<int>(random() % 2000));
    const char* way = "";
    switch (random() % 4) {
      case 0:
        way = "SIGTERM to one rank";
        ::kill(ranks[random() % 8], SIGTERM);
        break;
      case 1:
        way = "SIGTERM to all ranks";
        for (const pid_t rank : ranks) ::kill(rank, SIGTERM);
        break;
      case 2:
        way = "SIGUSR1 to mpirun";
        for (const pid_t launcher : launchers_of(process)) ::kill(launcher, SIGUSR1);
        break;
      default:
        way = "SIGTERM to the launch script";
        process.signal(SIGTERM);
        break;
    }
    CAPTURE(round, way);
    const Finished finished = process.wait(30);
    INFO(finished.out << finished.err);
    CHECK_FALSE(finished.timed_out);
    CHECK(finished.code == 75);
    CHECK(error_lines(finished) == 0);
    REQUIRE_FALSE(saved_steps(directory).empty());
    CHECK(saved_steps(directory).back() >= before);
    CHECK(mentions(finished.out, "after step " + std::to_string(saved_steps(directory).back()) + ";"));
  }
  require_resumable(directory);
}

TEST_CASE("SIGTERM to mpirun itself leaves a resumable run, quickly", "[fault-27]") {
  const TemporaryFolder folder;
  const std::string directory = folder.file("run");
  Process process(endless(directory, "2"));
  REQUIRE(wait_for_lines(process, directory, 6));
  REQUIRE(::kill(launchers_of(process).front(), SIGTERM) == 0);
  const Finished finished = process.wait(10);
  CHECK_FALSE(finished.timed_out);
  CHECK(finished.code != 0);
  require_resumable(directory);
}

TEST_CASE("a second signal ends at once, with the old checkpoint intact", "[fault-28]") {
  for (const int signal : {SIGTERM, SIGINT}) {
    CAPTURE(signal);
    const TemporaryFolder folder;
    const std::string directory = folder.file("run");
    Process process(endless(directory, "5"));
    REQUIRE(wait_for_lines(process, directory, 8));
    const std::vector<pid_t> ranks = process.children("megatron_train");
    REQUIRE(ranks.size() == 8);
    // A rank that stands still keeps the others from agreeing to save: so they are all waiting when the second comes.
    REQUIRE(::kill(ranks[3], SIGSTOP) == 0);
    for (const int round : {1, 2}) {
      CAPTURE(round);
      CHECK(process.running());
      for (const pid_t rank : ranks) {
        if (rank == ranks[3]) continue;
        ::kill(rank, signal);
        while (round == 1 && signal_is_in("ShdPnd:", rank, signal)) pause_milliseconds(1);
      }
    }
    ::kill(ranks[3], SIGCONT);
    const Finished finished = process.wait(10);
    INFO(finished.out << finished.err);
    CHECK_FALSE(finished.timed_out);
    CHECK(finished.code == 128 + signal);
    CHECK_FALSE(mentions(finished.out, "stopped on"));
    CHECK(saved_steps(directory).back() % 5 == 0);
    require_resumable(directory);
  }
}

TEST_CASE("Ctrl-C twice ends the launch script at once, with 130", "[fault-28]") {
  const TemporaryFolder folder;
  const std::string directory = folder.file("run");
  Process process(training({2, 1, 1}, directory, {kEndless}));
  REQUIRE(wait_for_lines(process, directory, 3));
  const std::vector<pid_t> ranks = process.children("megatron_train");
  REQUIRE(ranks.size() == 2);
  ::kill(ranks[1], SIGSTOP);  // so that the first signal cannot be obeyed
  process.signal(SIGINT);
  while (process.running() && !mentions(process.out(), "; a second signal ends the run at once")) pause_milliseconds(5);
  REQUIRE(process.running());
  process.signal(SIGINT);
  const Finished finished = process.wait(10);
  INFO(finished.out << finished.err);
  CHECK_FALSE(finished.timed_out);
  CHECK(finished.code == 130);
  // The launcher wakes the ranks before it ends them: the save may just have come through, and is then a whole one.
  const std::vector<std::int64_t> saved = saved_steps(directory);
  if (saved.empty()) return;
  const Finished again = train({2, 1, 1}, directory, {"train.steps=" + std::to_string(saved.back() + 1)});
  CHECK(mentions(again.out, "resuming from " + checkpoint(directory, saved.back())));
}

TEST_CASE("time limits save and stop, and say which limit it was", "[fault-30]") {
  struct Way {
    const char* says;
    const char* max_minutes;
    bool job_end;
  };
  const Way ways[] = {{"stopped on run.max_minutes = 0.12 after step", "0.12", false},
                      {"stopped on SLURM_JOB_END_TIME (", "60", true}};
  for (const Way& way : ways) {
    CAPTURE(way.says);
    const TemporaryFolder folder;
    const std::string directory = folder.file("run");
    Command command = training(kOneRank, directory,
                               {kEndless, "train.evaluate_every=0", std::string("run.max_minutes=") + way.max_minutes});
    if (way.job_end) {
      command.insert(command.begin(), {"env", "SLURM_JOB_END_TIME=" + std::to_string(std::time(nullptr) + 7)});
    }
    const Finished finished = run_command(command);
    INFO(finished.out << finished.err);
    CHECK(finished.code == 75);
    CHECK(finished.seconds > 1);
    CHECK(mentions(finished.out, way.says));
    REQUIRE(saved_steps(directory).size() == 1);
    CHECK(saved_steps(directory).back() > 0);
    CHECK(saved_steps(directory).back() == metrics_lines(directory));
  }
}

TEST_CASE("file STOP: stops the run and keeps it stopped until it is removed", "[fault-30]") {
  const TemporaryFolder folder;
  const std::string directory = folder.file("run"), file = directory + "/STOP";
  Process process(endless(directory, "0"));
  REQUIRE(wait_for_lines(process, directory, 3));
  write_file(file, "");
  const Finished finished = process.wait(30);
  INFO(finished.out << finished.err);
  CHECK(finished.code == 75);
  CHECK(mentions(finished.out, "stopped on " + file + " after step"));
  REQUIRE(saved_steps(directory).size() == 1);
  const auto before = all_files(directory);

  const Finished again = run_command(endless(directory, "1"));
  CHECK(again.code == 75);
  CHECK(mentions(again.out, "stopped on " + file + " before the first step; remove that file"));
  CHECK(all_files(directory) == before);

  std::filesystem::remove(file);
  require_resumable(directory);
}

TEST_CASE("stop in an evaluation: takes effect at once and a restart evaluates", "[fault-27]") {
  const TemporaryFolder folder;
  const std::string straight = folder.file("straight"), stopped = folder.file("stopped");
  // About a second of evaluation on one rank.
  const Settings settings = {"data.split=40,40,20", "train.evaluate_steps=1000000", "checkpoint.every_steps=1000000"};
  train(kOneRank, straight, settings);
  for (const std::int64_t lines : {4, 9, 10}) {  // in the one after step 4, then in both at the end
    CAPTURE(lines);
    if (lines ==
        10) {  // an end that leaves no word: what was evaluated since the checkpoint is done again, and is there once
      Process killed(training(kOneRank, stopped, settings));
      REQUIRE(wait_for_lines(killed, stopped, 10));
      killed.signal(SIGKILL);
      killed.wait(30);
    }
    Process process(training(kOneRank, stopped, settings));
    if (lines == 10) {
      for (int i = 0; i < 1000 && metrics_lines(stopped) != 9; ++i)
        std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    REQUIRE(wait_for_lines(process, stopped, lines));
    process.signal(SIGTERM);
    const Finished finished = process.wait(30);
    INFO(finished.out << finished.err);
    CHECK(finished.code == 75);
    CHECK(mentions(finished.out, lines == 4 ? "stopped on SIGTERM after step 4" : "stopped on SIGTERM after step 8"));
    CHECK(metrics_lines(stopped) == lines);
  }
  CHECK(mentions(train(kOneRank, stopped, settings).out, "test loss"));
  CHECK(numbers(stopped) == numbers(straight));
  CHECK(mentions(train(kOneRank, stopped, settings).out, "already complete"));
  CHECK(same_rank_files(stopped, straight, 8));
}

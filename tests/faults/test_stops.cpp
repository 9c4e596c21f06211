// Runs that are ended from outside: by signals that ask, and by signals that do not.
#include <catch2/catch.hpp>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <filesystem>
#include <random>

#include "faults/runs.h"

namespace {

constexpr const char* kEndless = "train.steps=1000000";

// A run on the cube that would take hours, without the evaluations that would only cost time.
Command endless(const std::string& directory, const std::string& every_steps, const char* async = "false") {
  return training(kCube, directory,
                  {kEndless, "train.evaluate_every=0", "checkpoint.every_steps=" + every_steps,
                   std::string("checkpoint.async=") + async});
}

// Resumes at the newest checkpoint for two steps more; all numbers must be those of a run without a break.
std::int64_t require_resumable(const std::string& directory) {
  const std::int64_t saved = saved_steps(directory).back(), last = saved + 2;
  const Finished resumed =
      train(kCube, directory,
            {"train.steps=" + std::to_string(last), "train.evaluate_every=0", "checkpoint.every_steps=1000000"});
  CHECK(mentions(resumed.out, "resuming from " + checkpoint(directory, saved)));
  CHECK(numbers(directory, "train") == first(reference_numbers(last), last));
  return last;
}

/// How often a test repeats a random moment: `usual` times, or as the environment says, for the long run by hand.
int times(const char* variable, int usual) {
  const char* value = std::getenv(variable);
  return value == nullptr ? usual : std::atoi(value);
}

/// Of a random moment: printed, and taken back with MEGATRON_SEED.
std::mt19937 seeded() {
  const char* value = std::getenv("MEGATRON_SEED");
  const auto seed = value == nullptr ? std::random_device()() : static_cast<unsigned>(std::atoll(value));
  std::printf("MEGATRON_SEED=%u\n", seed);
  return std::mt19937(seed);
}

/// Whether a process would notice SIGUSR1 and SIGTERM: before main it does what any process does, it dies.
bool listens(pid_t process) {
  std::ifstream status("/proc/" + std::to_string(process) + "/status");
  for (std::string line; std::getline(status, line);) {
    if (!line.starts_with("SigCgt:")) continue;
    const unsigned long long mask = std::stoull(line.substr(7), nullptr, 16);
    return ((mask >> (SIGUSR1 - 1)) & (mask >> (SIGTERM - 1)) & 1) != 0;
  }
  return false;
}

/// Waits until all eight ranks have been started that far.
std::vector<pid_t> listening_ranks(Process& process) {
  for (int waited = 0; waited < 5000 && process.running(); ++waited) {
    const std::vector<pid_t> ranks = process.children("megatron_train");
    if (ranks.size() == 8 && std::all_of(ranks.begin(), ranks.end(), listens)) return ranks;
    pause_milliseconds(2);
  }
  return {};
}

void require_same_weights(const std::string& directory, std::int64_t step) {
  const TemporaryFolder folder;
  const std::string straight = folder.file("straight");
  train(kCube, straight,
        {"train.steps=" + std::to_string(step), "train.evaluate_every=0", "checkpoint.every_steps=1000000"},
        60 + 0.1 * static_cast<double>(step));
  CHECK(same_rank_files(directory, straight, step));
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

TEST_CASE("a stop signal at any moment, from the start of main on: one checkpoint and 75", "[fault-27]") {
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
        for (const pid_t launcher : process.children("mpirun")) ::kill(launcher, SIGUSR1);
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
  const std::vector<pid_t> launchers = process.children("mpirun");
  REQUIRE(::kill(launchers.empty() ? process.pid() : launchers.front(), SIGTERM) == 0);
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
        if (rank != ranks[3]) ::kill(rank, signal);
      }
      pause_milliseconds(round == 1 ? 300 : 0);
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
  pause_milliseconds(200);
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

TEST_CASE("the death of one rank ends the job within seconds, and it can be resumed", "[fault-32]") {
  const TemporaryFolder folder;
  const std::string directory = folder.file("run");
  Process process(endless(directory, "5"));
  REQUIRE(wait_for_lines(process, directory, 12));
  const std::vector<pid_t> ranks = process.children("megatron_train");
  REQUIRE(ranks.size() == 8);
  REQUIRE(::kill(ranks[6], SIGKILL) == 0);
  const Finished finished = process.wait(10);
  CHECK_FALSE(finished.timed_out);
  CHECK(finished.code != 0);
  CHECK(finished.code != 75);
  require_resumable(directory);
}

TEST_CASE("kill -9 of the launcher: its ranks end, and the next start resumes", "[fault-58]") {
  const TemporaryFolder folder;
  const std::string directory = folder.file("run");
  std::vector<pid_t> ranks;
  {
    Process process(endless(directory, "1"));
    REQUIRE(wait_for_lines(process, directory, 3));
    ranks = process.children("megatron_train");
    REQUIRE(ranks.size() == 8);
    for (const pid_t launcher : process.children("mpirun")) ::kill(launcher, SIGKILL);
    for (const pid_t launcher : process.children("orterun")) ::kill(launcher, SIGKILL);
    process.wait(30);
  }
  const auto lives = [](pid_t rank) { return ::kill(rank, 0) == 0; };
  for (int waited = 0; waited < 300 && std::any_of(ranks.begin(), ranks.end(), lives); ++waited) {
    pause_milliseconds(100);
  }
  CHECK(std::none_of(ranks.begin(), ranks.end(), lives));
  for (const pid_t rank : ranks) {
    if (lives(rank)) ::kill(rank, SIGKILL);
  }
  require_resumable(directory);
}

TEST_CASE("kill -9 of one or all ranks at any moment of a save leaves a resumable run", "[fault-18][fault-26]") {
  const char* const async = GENERATE("false", "true");
  CAPTURE(async);
  const TemporaryFolder folder;
  const std::string directory = folder.file("run");
  std::mt19937 random = seeded();
  const int rounds = times("MEGATRON_KILLS", 8);
  int inside = 0;
  const auto unfinished = [&] {
    int count = 0;
    std::error_code error;
    for (std::filesystem::directory_iterator at(directory + "/checkpoints", error), end; !error && at != end;
         at.increment(error)) {
      count += at->path().filename().string().starts_with(".tmp_step") ? 1 : 0;
    }
    return count;
  };
  for (int round = 0; round < rounds; ++round) {
    const bool all = random() % 2 == 0;
    CAPTURE(round, all);
    const std::int64_t before = saved_steps(directory).empty() ? -1 : saved_steps(directory).back();
    Process process(endless(directory, "1", async));
    const auto progressed = [&] {
      const auto steps = saved_steps(directory);
      return !steps.empty() && steps.back() > before;
    };
    for (int waited = 0; waited < 10000 && process.running() && !progressed(); ++waited) pause_milliseconds(3);
    REQUIRE(process.running());
    const std::vector<pid_t> ranks = process.children("megatron_train");
    REQUIRE(ranks.size() == 8);
    // Not the first save, and then a moment in it or shortly after it.
    std::this_thread::sleep_for(std::chrono::microseconds(random() % 100000));
    for (int waited = 0; waited < 10000 && unfinished() == 0; ++waited) {
      std::this_thread::sleep_for(std::chrono::microseconds(100));
    }
    std::this_thread::sleep_for(std::chrono::microseconds(random() % 40000));
    const pid_t victim = ranks[random() % 8];
    for (const pid_t rank : ranks) {
      if (all || rank == victim) ::kill(rank, SIGKILL);
    }
    const Finished finished = process.wait(20);
    INFO(finished.out << finished.err);
    CHECK_FALSE(finished.timed_out);
    CHECK(finished.code != 0);
    CHECK_FALSE(mentions(finished.out, "already"));
    if (before >= 0) CHECK(mentions(finished.out, "resuming from " + checkpoint(directory, before)));
    CHECK_FALSE(mentions(finished.out + finished.err, "is damaged"));
    inside += unfinished();
  }
  const std::int64_t last = saved_steps(directory).back();
  std::printf("%d kills up to step %lld, %d of them have left an unfinished save\n", rounds,
              static_cast<long long>(last), inside);
  CHECK(inside > 0);
  require_same_weights(directory, require_resumable(directory));
}

TEST_CASE("time limits save and stop in time, and say which limit it was", "[fault-30]") {
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
    CHECK(finished.seconds < 7 + 2);  // two more for a busy machine; test_job checks the exact moment
    CHECK(mentions(finished.out, way.says));
    REQUIRE(saved_steps(directory).size() == 1);
    CHECK(saved_steps(directory).back() > 0);
    CHECK(saved_steps(directory).back() == metrics_lines(directory));
  }
}

TEST_CASE("a file STOP in the run directory stops the run, and keeps it stopped until it is removed", "[fault-30]") {
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

TEST_CASE("a stop in an evaluation is not delayed by it, and the evaluation is done by the next start", "[fault-27]") {
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

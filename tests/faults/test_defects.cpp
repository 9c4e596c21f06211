// Ranks that stand still and ranks that die: the job says which and in what, and ends, within seconds.
#include "faults/runs.h"
#include "support/catch.h"

namespace fs = std::filesystem;

namespace {

// A run on the cube that would take hours.
Command hours_on_cube(const std::string& directory, const Settings& settings = {}) {
  Settings all = {"train.steps=1000000", "train.evaluate_every=0"};
  all.insert(all.end(), settings.begin(), settings.end());
  return training(kCube, directory, all);
}

std::vector<std::string> lines_with(const std::string& text, const std::string& part) {
  std::vector<std::string> found;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    if (mentions(line, part)) found.push_back(line);
  }
  return found;
}

// Dead, but not yet missed by whatever inherits the launcher's children, counts as dead.
bool alive(pid_t process) {
  const std::string stat = contents_of("/proc/" + std::to_string(process) + "/stat");
  return !stat.empty() && !mentions(stat, ") Z ");
}

}  // namespace

TEST_CASE("a rank that hangs: all say what they wait in, and the job ends with 6", "[fault-31]") {
  const TemporaryFolder folder;
  Process process(hours_on_cube(folder.file("run"), {"run.hang_minutes=0.3"}));
  REQUIRE(wait_for_lines(process, folder.file("run"), 20));
  const std::vector<pid_t> ranks = process.children("megatron_train");
  REQUIRE(ranks.size() == 8);
  REQUIRE(::kill(ranks[3], SIGSTOP) == 0);
  const Finished finished = process.wait(40);
  INFO(finished.out << finished.err);
  CHECK_FALSE(finished.timed_out);
  CHECK(finished.code == 6);
  for (int rank = 0; rank < 8; ++rank) {
    const auto lines = lines_with(finished.err, "hang: rank " + std::to_string(rank) + " on ");
    REQUIRE(lines.size() == 1);  // one rank speaks for the node
    CHECK(mentions(lines[0], ": step "));
    CHECK(mentions(lines[0], " for "));
  }
  const auto stopped = lines_with(finished.err, "(stopped)");
  REQUIRE(stopped.size() == 1);
  CHECK(mentions(stopped[0], "process " + std::to_string(ranks[3]) + " "));
  // Seven wait for it, directly or not; with the tiny steps of this run nearly always in a communication.
  CHECK(lines_with(finished.err, "waits in ").size() >= 6);
  for (const pid_t rank : ranks) {
    CAPTURE(rank);
    for (int waited = 0; waited < kBusy * 500 && alive(rank); ++waited) pause_milliseconds(10);  // mpirun does not
    CHECK_FALSE(alive(rank));
  }
}

TEST_CASE("all ranks stopped for a while: the run continues", "[fault-31]") {
  const TemporaryFolder folder;
  const std::string directory = folder.file("run");
  Process process(hours_on_cube(directory, {"run.hang_minutes=0.5"}));  // no busy machine takes that long for a step
  REQUIRE(wait_for_lines(process, directory, 20));
  const std::vector<pid_t> ranks = process.children("megatron_train");
  for (const pid_t rank : ranks) ::kill(rank, SIGSTOP);
  pause_milliseconds(35000);
  const std::int64_t lines = metrics_lines(directory);
  for (const pid_t rank : ranks) ::kill(rank, SIGCONT);
  CHECK(wait_for_lines(process, directory, lines + 20));
  process.signal(SIGUSR1);
  const Finished finished = process.wait(30);
  INFO(finished.out << finished.err);
  CHECK(finished.code == 75);
  CHECK_FALSE(mentions(finished.err, "hang"));
}

TEST_CASE("crash: the job ends in seconds with rank and step and leaves the stack", "[fault-32]") {
  struct Way {
    int signal;
    const char* name;
  };
  for (const Way& way :
       {Way{SIGSEGV, "SIGSEGV"}, Way{SIGBUS, "SIGBUS"}, Way{SIGFPE, "SIGFPE"}, Way{SIGABRT, "SIGABRT"}}) {
    CAPTURE(way.name);
    const TemporaryFolder folder;
    const std::string directory = folder.file("run");
    Process process(hours_on_cube(directory));
    REQUIRE(wait_for_lines(process, directory, 5));
    const std::vector<pid_t> ranks = process.children("megatron_train");
    REQUIRE(ranks.size() == 8);
    REQUIRE(::kill(ranks[5], way.signal) == 0);
    const Finished finished = process.wait(10);
    INFO(finished.out << finished.err);
    CHECK_FALSE(finished.timed_out);
    CHECK(finished.code != 0);
    CHECK(finished.code != 75);
    const std::string first_line = first_error(finished);
    CHECK(mentions(first_line, "error: rank 5 of 8 on "));
    CHECK(mentions(first_line, std::string(": ") + way.name + " at step "));
    const std::string stack = contents_of(directory + "/backtrace_rank_5.txt");
    CHECK(mentions(stack, way.name));
    CHECK(mentions(stack, "main+0x"));
    CHECK_FALSE(fs::exists(directory + "/backtrace_rank_0.txt"));
    CHECK(error_lines(finished) == 1);
  }
}

TEST_CASE("a rank without memory ends the job, and says what it wanted", "[fault-32]") {
  const TemporaryFolder folder;
  const std::string directory = folder.file("run");
  // A process without a model takes some 300 MB of addresses, this model 400 MB more.
  const Command command = training({2, 1, 1}, directory, {"model.hidden_size=1024"});
  std::string words;
  for (std::size_t i = 2; i < command.size(); ++i) words += "'" + command[i] + "' ";
  const Command limited = {command[0], "2", "bash", "-c",
                           "((OMPI_COMM_WORLD_RANK == 1)) && ulimit -v 500000; exec " + words};
  const Finished finished = run_command(limited, 30);
  INFO(finished.out << finished.err);
  CHECK_FALSE(finished.timed_out);
  CHECK(finished.code == 2);
  CHECK(error_lines(finished) == 1);
  CHECK(mentions(finished.err, "error: rank 1 of 2 on "));
  CHECK(mentions(finished.err, "out of host memory"));
}

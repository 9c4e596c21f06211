// Several hosts: network namespaces of this machine (tests/support/hosts.sh). Skipped where they cannot be made, and
// with another Open MPI than version 4, whose options the script gives.
#include <optional>

#include "faults/runs.h"
#include "support/catch.h"

namespace {

constexpr Layout kTwoHosts{2, 2, 1};  // ranks 0 and 1, the first stage, on node1; 2 and 3 on node2

void require_hosts() {
  const bool can = run_command({source_folder() + "/tests/support/hosts.sh", "--check"}).code == 0;
  if (!can) skip_test("no network namespaces or no Open MPI 4 here");  // ctest knows these words
}

/// A training run on two hosts, and ways to harm it.
class OnHosts {
 public:
  explicit OnHosts(const Settings& settings, const std::string& wrapper = "") {
    Command command = training(kTwoHosts, directory(), settings);  // launch.sh, ranks, program, ...
    if (!wrapper.empty()) command.insert(command.begin() + 2, {"bash", "-c", wrapper + "; exec \"$@\"", "rank"});
    Command all = {source_folder() + "/tests/support/hosts.sh", "2", "2", folder_.path()};
    all.insert(all.end(), command.begin(), command.end());
    process_.emplace(all);
  }

  std::string directory() const { return folder_.file("run"); }
  bool trains(std::int64_t lines) { return wait_for_lines(*process_, directory(), lines); }
  void cut(const std::string& host) const { write_file(folder_.file("cut_" + host), ""); }
  std::vector<pid_t> programs(const std::string& name, const std::string& of_rank = "") const {
    std::vector<pid_t> found;
    for (const pid_t process : process_->children(name)) {
      const std::string environment = contents_of("/proc/" + std::to_string(process) + "/environ");
      if (of_rank.empty() || mentions(environment, "OMPI_COMM_WORLD_RANK=" + of_rank)) found.push_back(process);
    }
    return found;
  }
  void kill_rank(const std::string& rank, int signal) const {
    const std::vector<pid_t> found = programs("megatron_train", rank);
    REQUIRE(found.size() == 1);
    ::kill(found[0], signal);
  }
  /// The script waits for all programs to end and says if they do not.
  Finished wait() {
    Finished finished = process_->wait(200);
    CHECK_FALSE(finished.timed_out);
    CHECK_FALSE(mentions(finished.err, "still there"));
    return finished;
  }

 private:
  TemporaryFolder folder_;
  std::optional<Process> process_;
};

const Settings kEndlessRun = {"train.steps=1000000", "train.evaluate_every=0", "checkpoint.every_steps=10"};

Settings endless_with(const std::string& setting) {
  Settings settings = kEndlessRun;
  settings.push_back(setting);
  return settings;
}

bool names_saved_step(const std::string& line, const std::string& directory) {
  for (const std::int64_t step : saved_steps(directory)) {
    if (line.ends_with("; step " + std::to_string(step) + " is saved; the same command continues from it")) return true;
  }
  return false;
}

}  // namespace

TEST_CASE("hosts: a link that goes down ends the job on all hosts", "[fault-31]") {
  require_hosts();
  OnHosts run(endless_with("run.hang_minutes=0.05"));
  REQUIRE(run.trains(25));
  run.cut("node2");
  const Finished finished = run.wait();
  INFO(finished.out << finished.err);
  CHECK(finished.code == 6);
  CHECK(mentions(finished.err, "hang: rank 0 on node1, process "));
  // The peer of a wait is named; a sum over both hosts, in a step or a save, has none.
  CHECK((mentions(finished.err, "of the job on node2") || mentions(finished.err, "waits in all-reduce 'tie 0'") ||
         mentions(finished.err, "waits in all-reduce 'world'")));
  CHECK(mentions(finished.err, "hang: the job is aborted with exit code 6\n"));
  CHECK_FALSE(mentions(finished.out, "saving and stopping"));
  CHECK(names_saved_step(last_line(finished.err), run.directory()));
}

TEST_CASE("hosts: those silent in a hang are named with their ranks", "[fault-31]") {
  require_hosts();
  OnHosts run(endless_with("run.hang_minutes=0.05"));
  REQUIRE(run.trains(25));
  for (const char* rank : {"2", "3"}) run.kill_rank(rank, SIGSTOP);
  const Finished finished = run.wait();
  INFO(finished.out << finished.err);
  CHECK(finished.code == 6);
  CHECK(mentions(finished.err, "hang: no word from node2 (ranks 2, 3)\nhang: the job is aborted with exit code 6\n"));
}

TEST_CASE("hosts: a rank killed on another host is named in one line", "[fault-32]") {
  require_hosts();
  OnHosts run(kEndlessRun);
  REQUIRE(run.trains(25));
  run.kill_rank("3", SIGKILL);
  const Finished finished = run.wait();
  INFO(finished.out << finished.err);
  CHECK(finished.code == 137);
  const std::string line = last_line(finished.err);
  CHECK(line.starts_with("launch: rank 3 on node2 was ended by SIGKILL"));
  CHECK(names_saved_step(line, run.directory()));
  CHECK_FALSE(mentions(finished.out, "saving and stopping"));
  CHECK_FALSE(mentions(finished.err, "ORTE"));
}

TEST_CASE("hosts: a host that is gone is named in one line", "[fault-32]") {
  require_hosts();
  OnHosts run(kEndlessRun);
  REQUIRE(run.trains(25));
  const std::vector<pid_t> daemons = run.programs("orted");
  REQUIRE(daemons.size() == 1);  // node1 has mpirun
  ::kill(daemons[0], SIGKILL);
  for (const char* rank : {"2", "3"}) {  // processes that the daemon's end has left
    for (const pid_t left : run.programs("megatron_train", rank)) ::kill(left, SIGKILL);
  }
  const Finished finished = run.wait();
  INFO(finished.out << finished.err);
  CHECK(finished.code != 0);
  const std::string line = last_line(finished.err);
  CHECK(line.starts_with("launch: the host node2 is lost"));
  CHECK(names_saved_step(line, run.directory()));
  CHECK_FALSE(mentions(finished.out, "saving and stopping"));
  CHECK_FALSE(mentions(finished.err, "ORTE"));
}

TEST_CASE("hosts: an error of one host is printed once, with rank and host", "[fault-93]") {
  require_hosts();
  OnHosts run({"data.train=" + data_prefix() + "${OTHER_DATA}"},
              "[[ $(hostname) == node1 ]] && export OTHER_DATA= || export OTHER_DATA=/../corpus");
  const Finished finished = run.wait();
  INFO(finished.out << finished.err);
  CHECK(finished.code == 2);
  CHECK(error_lines(finished) == 1);
  CHECK(mentions(finished.err, "rank 2 on node2: the configuration here is not rank 0's"));
}

TEST_CASE("hosts: processors that choose other code are named at the start", "[fault-92]") {
  require_hosts();
  OnHosts run({"train.steps=1"}, "[[ $(hostname) == node1 ]] || export ONEDNN_MAX_CPU_ISA=SSE41");
  const Finished finished = run.wait();
  INFO(finished.out << finished.err);
  CHECK(finished.code == 0);
  for (const char* words : {"hosts compute by different code", " for SSE41", " on node2\n"}) {
    CHECK(mentions(finished.out + finished.err, words));
  }
}

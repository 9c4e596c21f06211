// scripts/launch.sh: what people read when a job does not end well.
#include <unistd.h>

#include <array>

#include "faults/runs.h"
#include "support/catch.h"

namespace {

std::string host_name() {
  std::array<char, 256> name{};
  ::gethostname(name.data(), name.size() - 1);
  return name.data();
}

void require_no_mpi_paragraphs(const Finished& finished) {
  for (const char* words : {"MPI_ABORT", "Primary job", "mpirun detected", "mpirun noticed", "----"}) {
    CAPTURE(words);
    CHECK_FALSE(mentions(finished.err, words));
  }
}

}  // namespace

TEST_CASE("launch script: a program's error and then one line with the exit code") {
  const TemporaryFolder folder;
  const Finished finished =
      run_command(training(kTwoTensorRanks, folder.file("run"), {"data.train=" + folder.file("nothing")}));
  INFO(finished.out << finished.err);
  CHECK(finished.code == 3);
  CHECK(error_lines(finished) == 1);
  require_no_mpi_paragraphs(finished);
  CHECK(last_line(finished.err) == "launch: the job ended with exit code 3 (data); the first error is above");
}

TEST_CASE("launch script: every line of the ranks passes, whatever it looks like") {
  const std::string ruler(74, '-');
  const std::string script = "echo '" + ruler + "' >&2; echo after a ruler >&2; echo 'MPI_ABORT is a word' >&2; " +
                             "echo '" + ruler + "' >&2; printf 'no line end' >&2; echo result; exit 3";
  const std::string expected =
      ruler + "\nafter a ruler\nMPI_ABORT is a word\n" + ruler +
      "\nno line end\nlaunch: the job ended with exit code 3 (data); the first error is above\n";
  // Libraries may write before the ranks do: Open MPI on a machine without /sys, and here a launcher of the test's.
  const TemporaryFolder folder;
  const std::string launcher = folder.file("mpirun"), before = "[node] a library's warning\n";
  write_file(launcher, "#!/bin/sh\nprintf \"[node] a library's warning\\n\" >&2\nexec mpirun \"$@\"\n");
  std::filesystem::permissions(launcher, std::filesystem::perms::owner_all);
  for (const bool warned : {false, true}) {
    CAPTURE(warned);
    Command command = launched(1, {"bash", "-c", script});
    if (warned) command.insert(command.begin(), {"env", "MPIRUN=" + launcher});
    const Finished finished = run_command(command);
    INFO(finished.err);
    CHECK(finished.code == 3);
    // Open MPI 5 writes a last line without its end to the other stream.
    const std::string unended = "no line end";
    const bool moved = finished.out == unended + "result\n";
    CHECK((moved || finished.out == "result\n"));
    std::string lines = expected;
    if (moved) lines.erase(lines.find("\n" + unended), unended.size() + 1);
    CHECK(finished.err.ends_with(lines));
    CHECK(finished.err.starts_with(before) == warned);
  }
}

TEST_CASE("launch script: the end of a job under Open MPI 5 is one line") {
  const TemporaryFolder folder;
  const std::string launcher = folder.file("mpirun"), ruler(74, '-');
  const auto said = [&](const std::string& paragraphs, int code) {
    write_file(launcher, "#!/bin/sh\ncat >&2 <<'END'\nerror: rank 0 of 2 on node1: its own\n" + paragraphs +
                             "END\nexit " + std::to_string(code) + "\n");
    std::filesystem::permissions(launcher, std::filesystem::perms::owner_all);
    Command command = launched(2, {"true"});
    command.insert(command.begin(), {"env", "MPIRUN=" + launcher});
    return run_command(command).err;
  };
  const std::string aborted = ruler +
                              "\nMPI_ABORT was invoked on rank 0 in communicator MPI_COMM_WORLD\n"
                              "  Proc: [[47075,1],0]\n  Errorcode: 3\n\n"
                              "NOTE: invoking MPI_ABORT causes Open MPI to kill all MPI processes.\n"
                              "You may or may not see output from other processes, depending on\n"
                              "exactly when Open MPI kills them.\n" +
                              ruler + "\n" + ruler +
                              "\nprterun has exited due to process rank 0 with PID 0 on node node1 calling\n"
                              "\"abort\". This may have caused other processes in the application to be\n"
                              "terminated by signals sent by prterun (as reported here).\n" +
                              ruler + "\n";
  const std::string own = "error: rank 0 of 2 on node1: its own\n";
  CHECK(said(aborted, 3) == own + "launch: the job ended with exit code 3 (data); the first error is above\n");
  const std::string failed = ruler +
                             "\nprterun detected that one or more processes exited with non-zero status,\n"
                             "thus causing the job to be terminated. The first process to do so was:\n\n"
                             "   Process name: [prterun-node1-7371@1,0]\n   Exit code:    3\n" +
                             ruler + "\n";
  CHECK(said(failed, 3) == own + "launch: the job ended with exit code 3 (data); the first error is above\n");
  const std::string killed = ruler +
                             "\nprterun noticed that process rank 1 with PID 7399 on node node1 exited on\n"
                             "signal 9 (Killed).\n" +
                             ruler + "\n";
  CHECK(said(killed, 137) == own + "launch: rank 1 on node1 was ended by SIGKILL (exit code 137)\n");
}

TEST_CASE("launch script: a killed rank is named with host and signal and step") {
  const std::string script =
      "((OMPI_COMM_WORLD_RANK == 1)) || exec sleep 60; echo step 200 is saved > "
      "$MEGATRON_SAVED_FILE; kill -KILL $$";
  const Finished finished = run_command(launched(2, {"bash", "-c", script}));
  INFO(finished.err);
  CHECK(finished.code == 137);
  require_no_mpi_paragraphs(finished);
  const std::string words = last_line(finished.err), host = host_name();
  // Open MPI does not always say which rank.
  CHECK((words.starts_with("launch: rank 1 on " + host + " was ended by SIGKILL, ") ||
         words.starts_with("launch: a rank was ended by SIGKILL (")));
  CHECK(words.ends_with(" (exit code 137); step 200 is saved"));
}

TEST_CASE("launch script: a second signal is ignored once the run has stopped") {
  const TemporaryFolder folder;
  const std::string may_end = folder.file("may_end");
  const std::string script =
      "trap 'printf \"step 20 is saved\\nstopped\\n\" > $MEGATRON_SAVED_FILE; echo stopped; stopped=yes' USR1; echo "
      "ready; "
      "until [[ -n $stopped && -e '" +
      may_end + "' ]]; do sleep 0.1; done; exit 75";
  Process process(launched(1, {"bash", "-c", script}));
  const auto wait_for = [&](const char* words) {
    for (int waited = 0; waited < kBusy * 6000 && process.running(); ++waited) {
      if (mentions(process.out() + process.err(), words)) return;
      pause_milliseconds(5);
    }
    INFO(process.out() << process.err());
    FAIL("no \"" << words << "\"");
  };
  wait_for("ready");
  process.signal(SIGINT);
  wait_for("stopped");
  process.signal(SIGINT);
  wait_for("launch: the run has saved and is ending; one more signal ends it at once");
  write_file(may_end, "");
  const Finished finished = process.wait(30);
  INFO(finished.out << finished.err);
  CHECK(finished.code == 75);
  CHECK(last_line(finished.err).starts_with("launch: the job stopped early and has a checkpoint"));
}

TEST_CASE("launch script: Open MPI's own failures are not a defect of the program") {
  struct Way {
    const char* printed;
    int code;
    const char* words;
    const char* passed;
  };
  const std::string ruler(74, '-');
  const std::string lost =
      ruler +
      "\nORTE has lost communication with a remote daemon.\n\n  HNP daemon   : [[54093,0],0] on "
      "node node1\n  Remote daemon: [[54093,0],2] on node node3\n\nThis is usually due to either a "
      "failure of the TCP network\nconnection to the node, or possibly an internal failure of\nthe "
      "daemon itself. We cannot recover from this failure, and\ntherefore will terminate the "
      "job.\n" +
      ruler + "\n";
  for (const Way& way :
       {Way{"[vm:1] [[4923,0],0] ORTE_ERROR_LOG: Out of resource in file ../../oob_tcp_listener.c at line 133\n"
            "no network\n",
            1,
            "launch: Open MPI could not start the job, or has lost it (exit code 1): Out of resource "
            "(oob_tcp_listener.c); its own messages are above, if it gave any",
            "no network\n"},
        Way{lost.c_str(), 205,
            "launch: the host node3 is lost: it, its network or Open MPI's daemon there is down (exit code 205)", ""},
        Way{"[node1:7] PMIX ERROR: UNREACHABLE in file ../server.c at line 2198\n"
            "[node1:7] 3 more processes have sent help message help-mpi-api.txt / mpi-abort\n"
            "[node1:9] Read -1, expected 4096, errno = 3\n",
            255,
            "launch: Open MPI could not start the job, or has lost it (exit code 255): UNREACHABLE (server.c); its "
            "own messages are above, if it gave any",
            ""}}) {
    const TemporaryFolder folder;
    const std::string launcher = folder.file("mpirun");
    write_file(folder.file("printed"), way.printed);
    write_file(launcher,
               "#!/bin/sh\ncat '" + folder.file("printed") + "' >&2\nexit " + std::to_string(way.code) + "\n");
    std::filesystem::permissions(launcher, std::filesystem::perms::owner_all);
    Command command = {"env", "MPIRUN=" + launcher};
    for (const std::string& word : launched(2, {"true"})) command.push_back(word);
    const Finished finished = run_command(command);
    CHECK(finished.code == way.code);
    CHECK(finished.err == std::string(way.passed) + way.words + "\n");
  }
}

TEST_CASE("launch script: the code of an abort, when mpirun is killed after it") {
  const TemporaryFolder folder;
  const std::string launcher = folder.file("mpirun");
  write_file(launcher, "#!/bin/sh\necho 6 > $MEGATRON_ABORTED_FILE\nkill -KILL $$\n");
  std::filesystem::permissions(launcher, std::filesystem::perms::owner_all);
  Command command = {"env", "MPIRUN=" + launcher};
  for (const std::string& word : launched(2, {"true"})) command.push_back(word);
  const Finished finished = run_command(command);
  CHECK(finished.code == 6);
  CHECK(finished.err == "launch: the job ended with exit code 6 (communication); the first error is above\n");
}

TEST_CASE("launch script: a suspended launcher is waited for to its end") {
  const TemporaryFolder folder;
  const std::string launcher = folder.file("mpirun");
  write_file(launcher, "#!/bin/sh\n(sleep 0.5; kill -CONT $$) &\nkill -STOP $$\nwait\necho continued\n");
  std::filesystem::permissions(launcher, std::filesystem::perms::owner_all);
  Command command = {"env", "MPIRUN=" + launcher};
  for (const std::string& word : launched(2, {"true"})) command.push_back(word);
  const Finished finished = run_command(command);
  CHECK(finished.code == 0);
  CHECK(finished.out == "continued\n");
  CHECK(finished.err.empty());
}

TEST_CASE("launch script: no launcher and no program say what to do") {
  Command command = {"env", "MPIRUN=/nonexistent/mpirun"};
  for (const std::string& word : launched(2, {"true"})) command.push_back(word);
  const Finished launcher = run_command(command);
  CHECK(launcher.code == 127);
  CHECK(mentions(launcher.err, "launch: /nonexistent/mpirun: not found; install Open MPI"));
  const Finished program = run_command(launched(2, {"./no_such_program"}));
  CHECK(program.code == 127);
  CHECK(mentions(program.err, "launch: ./no_such_program: no such program; build it first: make"));
}

TEST_CASE("launch script: a stop in a long step is acknowledged at once by name") {
  const TemporaryFolder folder;
  const std::string directory = folder.file("run");
  // Some twenty seconds on an idle machine.
  Process process(training(kTwoTensorRanks, directory,
                           {"model.hidden_size=256", "model.sequence_length=256", "train.micro_batch_size=4",
                            "train.global_batch_size=512", "train.evaluate_every=0"}));
  const auto wait_for = [&](const char* words) {
    for (int waited = 0; waited < kBusy * 6000 && process.running() && !mentions(process.out(), words); ++waited) {
      pause_milliseconds(5);
    }
    INFO(process.out() << process.err());
    REQUIRE(mentions(process.out(), words));
  };
  wait_for("\nstep 1: micro-batch ");
  CHECK(mentions(process.out(), " of 128, "));
  process.signal(SIGINT);
  wait_for("Ctrl-C: saving and stopping after step 1");
  CHECK(mentions(process.out(), "; a second signal ends the run at once, without saving\n"));
  REQUIRE(process.running());
  process.signal(SIGTERM);
  const Finished finished = process.wait(30);
  INFO(finished.out << finished.err);
  CHECK(finished.code == 143);
  require_no_mpi_paragraphs(finished);
  CHECK(last_line(finished.err) ==
        "launch: the job was ended by a second signal, without saving (exit code 143); "
        "nothing is saved yet; the same command starts again");
}

// scripts/launch.sh: what people read when a job does not end well.
#include <catch2/catch.hpp>

#include "faults/runs.h"

namespace {

constexpr Layout kTwo{2, 1, 1};

void require_no_mpi_paragraphs(const Finished& finished) {
  for (const char* words : {"MPI_ABORT", "Primary job", "mpirun detected", "mpirun noticed", "----"}) {
    CAPTURE(words);
    CHECK_FALSE(mentions(finished.err, words));
  }
}

}  // namespace

TEST_CASE("launch script: an error of the program, then one line with the exit code") {
  const TemporaryFolder folder;
  const Finished finished = run_command(training(kTwo, folder.file("run"), {"data.train=" + folder.file("nothing")}));
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
    CHECK(finished.out == "result\n");
    CHECK(finished.err.ends_with(expected));
    CHECK(finished.err.starts_with(before) == warned);
  }
}

TEST_CASE("launch script: a rank that is killed has its signal named") {
  const Finished finished = run_command(launched(2, {"bash", "-c", "kill -KILL $$"}));
  CHECK(finished.code == 137);
  CHECK(last_line(finished.err) == "launch: the job was ended by SIGKILL (exit code 137)");
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

TEST_CASE("a stop in a long step is acknowledged at once, by the name of what was done") {
  const TemporaryFolder folder;
  const std::string directory = folder.file("run");
  // Some twenty seconds on an idle machine.
  Process process(training(kTwo, directory,
                           {"model.hidden_size=256", "model.sequence_length=256", "train.micro_batch_size=4",
                            "train.global_batch_size=512", "train.evaluate_every=0"}));
  const auto wait_for = [&](const char* words) {
    for (int waited = 0; waited < 6000 && process.running() && !mentions(process.out(), words); ++waited) {
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
  CHECK(last_line(finished.err) == "launch: the job was ended by a second signal, without saving (exit code 143)");
}

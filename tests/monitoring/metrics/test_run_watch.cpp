#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <sys/stat.h>
#include <csignal>
#include <cstdlib>

#include "monitoring/metrics/run_watch.h"
#include "support/catch.h"
#include "support/temporary_folder.h"

using namespace megatron;

namespace {

double g_now = 0;
double now() {
  return g_now;
}

void pass(PassProgress& passes, Section section) {
  passes.begin(name_of(section), -1);
  passes.begin(name_of(Section::communication), -1);  // inside of it
  passes.end();
  passes.end();
}

// Standard output of `body` in a separate process, which prints to a file.
template <class Body>
std::string printed(Body body, bool from_launcher = false) {
  const TemporaryFolder folder;
  const pid_t child = ::fork();
  if (child == 0) {
    ::dup2(::open(folder.file("out").c_str(), O_WRONLY | O_CREAT, 0666), STDOUT_FILENO);
    {
      Log log(true);
      StopSignals signals(from_launcher ? ::getpid() : 0);
      PassProgress passes;
      SavedStep saved(true);
      saved.set(6);
      RunWatch watch(log, signals, passes, saved, 100, now, false);
      body(log, watch, passes);
    }
    ::_exit(0);
  }
  int status = -1;
  ::waitpid(child, &status, 0);
  REQUIRE(status == 0);
  return contents_of(folder.file("out"));
}

void pass_time(RunWatch& watch, double seconds) {
  for (const double end = g_now + seconds; g_now < end;) {
    g_now += 0.5;
    watch.look();
  }
}

}  // namespace

TEST_CASE("estimated durations are rounded to what people say") {
  CHECK(about(0.2) == "1 s");
  CHECK(about(58.4) == "58 s");
  CHECK(about(180) == "3 min");
  CHECK(about(7200 + 1800) == "2.5 h");
  CHECK(about(90.0 * 365 * 86400) == "32850 days");
}

TEST_CASE("run watch: a long step says where it is, less and less often") {
  const std::string text = printed([](Log&, RunWatch& watch, PassProgress& passes) {
    watch.begin_step(1);
    passes.begin_step(2, 1, false);
    pass_time(watch, 15);  // "5 s so far"
    pass(passes, Section::forward);
    pass(passes, Section::backward);
    pass_time(watch, 55);
  });
  CHECK(text ==
        "step 1: micro-batch 1 of 2, 5 s so far\n"
        "step 1: micro-batch 2 of 2, ends in about 10 s\n"
        "step 1: micro-batch 2 of 2, 66 s so far, no pass has ended for 50 s\n");
}

TEST_CASE("pass progress: chunks and halved backwards add up to the whole step") {
  PassProgress passes;
  CHECK(passes.fraction() == 0);
  passes.begin_step(2, 2, true);
  for (int i = 1; i <= 4; ++i) {
    for (const Section section : {Section::forward, Section::backward, Section::backward}) pass(passes, section);
    CHECK(passes.fraction() == i / 4.0);
  }
  pass(passes, Section::optimizer);
  CHECK(passes.fraction() == 1);
  passes.begin_step(3, 1, false);
  CHECK(passes.fraction() == 0);
  CHECK(passes.micro_batches() == 3);
}

TEST_CASE("run watch: silent while other lines come and then reports short steps") {
  const std::string text = printed([](Log& log, RunWatch& watch, PassProgress&) {
    for (int step = 1; step <= 16; ++step) {
      watch.begin_step(step);
      pass_time(watch, 1);
      watch.end_step(1, 3.5, 99);
      if (step <= 10) log.info("line");
    }
  });
  std::string expected;
  for (int line = 0; line < 10; ++line) expected += "line\n";
  CHECK(text == expected + "step 16 of 100, 1 s per step\n");
}

TEST_CASE("run watch: a stop signal is acknowledged once with the time left") {
  const std::string text = printed([](Log&, RunWatch& watch, PassProgress& passes) {
    ::unsetenv("MEGATRON_SIGNAL_FILE");
    watch.begin_step(7);
    passes.begin_step(2, 1, false);
    pass(passes, Section::forward);
    g_now += 1.5;
    watch.look();
    ::raise(SIGINT);
    watch.look();
    watch.look();
  });
  CHECK(text ==
        "Ctrl-C: saving and stopping after step 7, in about 8 s; a second signal ends the run at once, without "
        "saving\n");
}

TEST_CASE("run watch: a step whose update is long ends when the one before did") {
  const std::string text = printed([](Log&, RunWatch& watch, PassProgress& passes) {
    ::unsetenv("MEGATRON_SIGNAL_FILE");
    watch.begin_step(7);
    watch.end_step(40, 3.5, 99);
    watch.begin_step(8);
    passes.begin_step(1, 1, false);
    pass(passes, Section::forward);
    g_now += 2;
    watch.look();
    ::raise(SIGINT);
    watch.look();
    pass(passes, Section::backward);
    pass_time(watch, 10);
  });
  CHECK(text ==
        "Ctrl-C: saving and stopping after step 8, in about 38 s; a second signal ends the run at once, without "
        "saving\n"
        "step 8: ends in about 33 s\n");
}

TEST_CASE("run watch: a launcher's SIGTERM promises no save before its grace ends") {
  for (const bool script : {false, true}) {
    const TemporaryFolder folder;
    if (script) ::setenv("MEGATRON_SAVED_FILE", folder.file("saved").c_str(), 1);
    const std::string text = printed(
        [](Log&, RunWatch& watch, PassProgress& passes) {
          watch.begin_step(7);
          passes.begin_step(2, 1, false);
          ::raise(SIGTERM);
          pass_time(watch, 2.5);
          (void)!::write(STDOUT_FILENO, "--\n", 3);
          pass_time(watch, 2);
        },
        true);
    ::unsetenv("MEGATRON_SAVED_FILE");
    const std::string saved = "step 6 is saved; the same command continues from it\n";
    CHECK(text == (script ? "" : "SIGTERM from mpirun, which ends the job; " + saved) +
                      "--\nSIGTERM: saving and stopping after step 7; a second signal ends the run at once, without "
                      "saving\n");
    if (script) CHECK(contents_of(folder.file("saved")) == saved);
  }
}

TEST_CASE("run watch: the launch script's file says which signal it received", "[fault-55]") {
  const TemporaryFolder folder;
  const std::string file = folder.file("signal");
  write_file(file, "SIGHUP\n");
  ::setenv("MEGATRON_SIGNAL_FILE", file.c_str(), 1);
  CHECK(StopSignals::reason_for(SIGUSR1) == "SIGHUP");
  CHECK(StopSignals::reason_for(SIGTERM) == "SIGTERM");
  write_file(file, "SIGINT\n");
  CHECK(StopSignals::reason_for(SIGUSR1) == "Ctrl-C");
  write_file(file, "nonsense\n");
  CHECK(StopSignals::reason_for(SIGUSR1) == "SIGUSR1");
  std::filesystem::remove(file);
  REQUIRE(::mkfifo(file.c_str(), 0600) == 0);  // nothing is waited for
  CHECK(StopSignals::reason_for(SIGUSR1) == "SIGUSR1");
  ::unsetenv("MEGATRON_SIGNAL_FILE");
  CHECK(StopSignals::reason_for(SIGUSR1) == "SIGUSR1");
}

TEST_CASE("run watch: saving has its name and the end is silent") {
  const std::string text = printed([](Log&, RunWatch& watch, PassProgress&) {
    watch.begin("saving");
    pass_time(watch, 6);
    watch.begin("");
    pass_time(watch, 1000);
    ::raise(SIGTERM);
    watch.look();
  });
  CHECK(text == "saving, 5 s so far\n");
}

#include "distributed/process/run_limits.h"

#include <chrono>

#include "support/catch.h"
#include "support/temporary_folder.h"

using namespace megatron;

namespace {

double now = 0;
double test_clock() {
  return now;
}

double seconds_since_1970() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

}  // namespace

TEST_CASE("a time limit leaves room for one step and one save, as measured", "[fault-30]") {
  const TemporaryFolder folder;
  now = 1000;
  RunLimits limits({.started = 1000, .max_minutes = 10}, folder.path(), test_clock);
  const auto last_moment = [&] {  // the last full second of the 600 at which a step may still begin
    double at = 1000;
    for (now = at; limits.reached().empty(); now += 1) at = now;
    return 600 - (at - 1000);
  };
  CHECK(last_moment() == Approx(31).margin(1));  // nothing measured: 5 % of the time
  limits.step_took(20);
  CHECK(last_moment() == Approx(31 + 25).margin(1));
  limits.save_took(4);
  limits.save_took(2);  // the longest one counts
  CHECK(last_moment() == Approx(1 + 25 + 6).margin(1));
  for (int i = 0; i < 100; ++i) limits.step_took(2);  // one slow step is forgotten in time
  CHECK(last_moment() == Approx(1 + 2.5 + 6).margin(1));
  now = 1000 + 599;
  CHECK(limits.reached() == "run.max_minutes = 10");
}

TEST_CASE("run limits: before the first save a long run keeps ten minutes free") {
  const TemporaryFolder folder;
  now = 0;
  RunLimits limits({.max_minutes = 2 * 24 * 60}, folder.path(), test_clock);
  now = 2 * 86400 - 610;
  CHECK(limits.reached().empty());
  now += 20;
  CHECK(limits.reached() == "run.max_minutes = 2880");
}

TEST_CASE("the nearer of two time limits counts, and is named") {
  const TemporaryFolder folder;
  now = 50;
  const auto reached = [&](double max_minutes, double job_seconds, double at) {
    now = 50;
    RunLimits limits({.started = 50, .max_minutes = max_minutes, .job_ends = seconds_since_1970() + job_seconds},
                     folder.path(), test_clock);
    now = 50 + at;
    return limits.reached();
  };
  CHECK(reached(10, 3600, 300) == "");
  CHECK(reached(10, 3600, 595) == "run.max_minutes = 10");
  CHECK(reached(100, 600, 595).substr(0, 20) == "SLURM_JOB_END_TIME (");
  CHECK(reached(0, 600, 595).substr(0, 20) == "SLURM_JOB_END_TIME (");
  CHECK(reached(0, 600, 300) == "");
  CHECK(reached(0, -5, 0) != "");  // over already
}

TEST_CASE("run limits: without limits the stop file is looked for once a second", "[fault-30]") {
  const TemporaryFolder folder;
  now = 0;
  RunLimits limits({}, folder.path(), test_clock);
  CHECK(limits.description() == "");
  CHECK(limits.reached() == "");
  write_file(folder.file("STOP"), "");
  CHECK(stop_file_exists(folder.path()));
  now = 0.5;
  CHECK(limits.reached() == "");
  now = 1e6;
  CHECK(limits.reached() == folder.file("STOP"));
}

TEST_CASE("SLURM_JOB_END_TIME is believed when it is a time") {
  CHECK(parse_job_end("1700000000") == 1700000000.0);
  for (const char* text : {static_cast<const char*>(nullptr), "", "0", "-5", "soon", "17x", "4294967295", "4294967294",
                           "inf", "nan", "18446744073709551615"}) {
    CHECK_FALSE(parse_job_end(text).has_value());
  }
}

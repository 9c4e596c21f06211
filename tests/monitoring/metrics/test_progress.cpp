#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <string>

#include "monitoring/metrics/progress.h"
#include "support/catch.h"
#include "support/temporary_folder.h"

using namespace megatron;

TEST_CASE("durations for people") {
  CHECK(format_duration(0) == "0:00");
  CHECK(format_duration(7.4) == "0:07");
  CHECK(format_duration(59.6) == "1:00");
  CHECK(format_duration(754) == "12:34");
  CHECK(format_duration(3599.7) == "1:00:00");
  CHECK(format_duration(3723) == "1:02:03");
  CHECK(format_duration(3 * 86400 + 4 * 3600 + 5 * 60 + 59) == "3d 04:05");
  CHECK(format_duration(-1) == "-");
  CHECK(format_duration(INFINITY) == "-");
  CHECK(format_duration(std::nan("")) == "-");
}

TEST_CASE("progress lines keep the header's columns whatever the numbers") {
  ProgressLine line{.step = 12,
                    .loss = 3.14159,
                    .grad_norm = 0.75,
                    .learning_rate = 6e-5,
                    .step_seconds = 1.25,
                    .tokens_per_second = 6553.6,
                    .remaining_seconds = 3723};
  CHECK(progress_header(5000) == "     step      loss grad norm        lr   s/step   tokens/s       ETA");
  CHECK(progress_line(line, 5000) == "  12/5000    3.1416     0.750  6.00e-05    1.250       6554   1:02:03");
  for (const double value : {0.0, 1e-30, 123456789.0, 1e300, -5.0, -1e30, std::nan(""), double{INFINITY}}) {
    for (const std::int64_t total : {1LL, 5000LL, 10000000LL}) {
      line.step = total;
      line.loss = line.grad_norm = line.learning_rate = line.step_seconds = line.tokens_per_second = value;
      CAPTURE(value, total, progress_line(line, total));
      CHECK(progress_line(line, total).size() == progress_header(total).size());
    }
  }
  line.grad_norm = -std::nan("");
  CHECK(progress_line(line, 5000).find("-nan") == std::string::npos);
  line.loss_scale = 4294967296;
  CHECK(progress_line(line, 5000).ends_with("  loss scale 4294967296"));
  line.skipped = true;
  CHECK(progress_line(line, 5000).ends_with("  skipped"));
}

TEST_CASE("progress: the header returns every 20 lines and the ETA counts tokens") {
  const TemporaryFolder folder;
  const pid_t child = ::fork();
  if (child == 0) {
    ::dup2(::open(folder.file("out").c_str(), O_WRONLY | O_CREAT, 0666), STDOUT_FILENO);
    Log log(true);
    Progress progress(log, 100);
    const auto print = [&](std::int64_t step, double seconds) {  // 10 tokens per step
      progress.print({.step = step,
                      .step_seconds = seconds,
                      .tokens_per_second = 10 / seconds,
                      .remaining_tokens = 10 * static_cast<double>(100 - step)});
    };
    print(1, 20);
    for (std::int64_t step = 2; step <= 41; ++step) print(step, step == 3 ? 3 : 2);
    progress.repeat_header();
    print(42, 12);
    ::_exit(0);
  }
  int status = -1;
  ::waitpid(child, &status, 0);
  REQUIRE(status == 0);
  std::ifstream file(folder.file("out"));
  std::vector<std::string> lines;
  for (std::string line; std::getline(file, line);) lines.push_back(line);
  REQUIRE(lines.size() == 42 + 4);
  for (const std::size_t at : {0, 21, 42, 44}) CHECK(lines[at] == progress_header(100));
  CHECK(lines[1].ends_with(" 33:00"));  // 99 steps of 20 s, of which nothing is left in the next line
  CHECK(lines[2].ends_with(" 3:16"));   // 98 of 2 s
  CHECK(lines[3].ends_with(" 4:02"));   // 97 of 2.5 s: of few lines each counts as much
  CHECK(lines[43].ends_with(" 1:58"));  // 59 of 2 s
  CHECK(lines[45].ends_with(" 2:54"));  // 58 of 3 s: one slow step in ten counts a tenth
}

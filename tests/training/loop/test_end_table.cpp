// The table at the end of a run, from made-up numbers of ranks.
#include "distributed/comm/gather.h"
#include "support/catch.h"
#include "training/loop/end_table.h"

#include <sstream>

using namespace megatron;

namespace {

RankReport report_of(double forward, double backward, double bytes) {
  RankReport report;
  report.seconds[static_cast<std::size_t>(Section::forward)] = forward;
  report.seconds[static_cast<std::size_t>(Section::backward)] = backward;
  report.peak_resident_bytes = 4 * bytes;
  report.planned_bytes = report.used_bytes = bytes;
  report.sent_bytes = bytes / 2;
  return report;
}

/// The line whose first word is `name`, its words separated by one space.
std::string row(const std::string& table, const std::string& name) {
  std::istringstream lines(table);
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line);
    std::string text, word;
    while (words >> word) text += (text.empty() ? "" : " ") + word;
    if (text == name || text.starts_with(name + " ")) return text;
  }
  return "";
}

constexpr double kMiB = 1 << 20;

}  // namespace

TEST_CASE("end table: time is minimum and average and maximum with its share") {
  const std::string table = end_table({report_of(1, 2, kMiB), report_of(3, 2, kMiB), report_of(2, 5, kMiB)});
  CHECK(row(table, "seconds") == "seconds min average max share");
  CHECK(row(table, "forward") == "forward 1.00 2.00 3.00 40.0%");
  CHECK(row(table, "backward") == "backward 2.00 3.00 5.00 60.0%");
  CHECK(row(table, "optimizer") == "optimizer 0.00 0.00 0.00 0.0%");
  CHECK(row(table, "total") == "total 5.00");
}

TEST_CASE("end table: every section has a row") {
  const std::string table = end_table({report_of(1, 1, kMiB)});
  for (std::size_t i = 0; i < kSectionCount; ++i) {
    const std::string name = name_of(static_cast<Section>(i));
    INFO(name);
    CHECK(row(table, name).starts_with(name + " "));
  }
  CHECK(row(end_table({RankReport{}}), "forward") == "forward 0.00 0.00 0.00 0.0%");  // no time at all
}

TEST_CASE("end table: memory and traffic are minimum and average and maximum") {
  const std::string table = end_table({report_of(1, 1, 2 * kMiB), report_of(1, 1, 4 * kMiB)});
  CHECK(row(table, "predicted") == "predicted 2.0 MiB 3.0 MiB 4.0 MiB");
  CHECK(row(table, "used") == "used 2.0 MiB 3.0 MiB 4.0 MiB as predicted, to the byte");
  CHECK(row(table, "peak") == "peak resident 8.0 MiB 12.0 MiB 16.0 MiB");
  CHECK(row(table, "sent") == "sent 1.0 MiB 1.5 MiB 2.0 MiB");
  CHECK(table.back() != '\n');
}

TEST_CASE("end table: the verdict on memory is the worst rank's, more before less") {
  RankReport exact = report_of(1, 1, kMiB), more = exact, less = exact;
  more.used_bytes += 7;
  less.used_bytes -= 64;
  const auto verdict = [](const std::vector<RankReport>& ranks) {
    const std::string used = row(end_table(ranks), "used");
    return used.substr(used.rfind("MiB") + 4);
  };
  CHECK(verdict({exact, exact}) == "as predicted, to the byte");
  CHECK(verdict({exact, less}) == "not all of it was needed");
  CHECK(verdict({exact, more}) == "not as predicted: up to 7 bytes more");
  CHECK(verdict({less, more}) == "not as predicted: up to 7 bytes more");
}

TEST_CASE("end table: a rank's report arrives as it was sent") {
  RankReport report;
  for (std::size_t i = 0; i < kSectionCount; ++i) report.seconds[i] = 0.1 + static_cast<double>(i) / 3;
  report.peak_resident_bytes = 1e12 + 1;
  report.planned_bytes = 9007199254740991.0;
  report.used_bytes = 3;
  report.sent_bytes = 0.5;
  const RankReport back = unpacked<RankReport>(packed(report));
  CHECK(back.seconds == report.seconds);
  CHECK(back.peak_resident_bytes == report.peak_resident_bytes);
  CHECK(back.planned_bytes == report.planned_bytes);
  CHECK(back.used_bytes == report.used_bytes);
  CHECK(back.sent_bytes == report.sent_bytes);
}

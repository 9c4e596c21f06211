// Runs whose ranks or launcher are killed, which leaves them no time to save.
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <regex>
#include <sstream>
#include <string>
#include <vector>

#include "faults/endless_runs.h"
#include "support/catch.h"

namespace {

/// Lines of `text` without those by which Open MPI 5 tells that a machine without a network has none. A rank writes
/// such a line in three pieces, and others between them.
std::vector<std::string> lines_but_for_networks(const std::string& text) {
  static const std::regex warning(
      "\\[[^\\]\n]+\\]\\[\\[[0-9,]+\\],[0-9]+\\]\\[[^\\]\n]*btl_tcp_proc[^\\]\n]*\\] "
      "|Unable to find reachable pairing between local and remote interfaces");
  std::istringstream rest(std::regex_replace(text, warning, ""));
  std::vector<std::string> lines;
  for (std::string line; std::getline(rest, line);) {
    if (!line.empty()) lines.push_back(line);
  }
  return lines;
}

}  // namespace

TEST_CASE("kills: the death of one rank ends the job in seconds and it resumes", "[fault-32]") {
  const TemporaryFolder folder;
  const std::string directory = folder.file("run");
  Process process(endless(directory, "5"));
  REQUIRE(wait_for_lines(process, directory, 12));
  const std::vector<pid_t> ranks = process.children("megatron_train");
  REQUIRE(ranks.size() == 8);
  REQUIRE(::kill(ranks[6], SIGKILL) == 0);
  const Finished finished = process.wait(60);
  INFO(finished.out << finished.err);
  CHECK_FALSE(finished.timed_out);
  CHECK(finished.code == 137);
  // One line says it all, and no line promises a save that cannot be done any more.
  const std::vector<std::string> lines = lines_but_for_networks(finished.err);
  REQUIRE(lines.size() == 1);
  const std::string& words = lines[0];
  CHECK(words.starts_with("launch: rank 6 on "));
  CHECK(mentions(words, " was ended by SIGKILL, "));
  bool names_saved = false;  // a save may have been complete that rank 0 did not live to tell
  for (const std::int64_t step : saved_steps(directory)) {
    names_saved |= words.ends_with("; step " + std::to_string(step) + " is saved; the same command continues from it");
  }
  CHECK(names_saved);
  CHECK_FALSE(mentions(finished.out, "saving and stopping"));
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
    for (const pid_t launcher : launchers_of(process)) ::kill(launcher, SIGKILL);
    process.wait(30);
  }
  const auto lives = [](pid_t rank) { return ::kill(rank, 0) == 0; };
  for (int waited = 0; waited < kBusy * 300 && std::any_of(ranks.begin(), ranks.end(), lives); ++waited) {
    pause_milliseconds(100);
  }
  CHECK(std::none_of(ranks.begin(), ranks.end(), lives));
  for (const pid_t rank : ranks) {
    if (lives(rank)) ::kill(rank, SIGKILL);
  }
  require_resumable(directory);
}

TEST_CASE("kills: kill -9 of one or all ranks in a save leaves a resumable run", "[fault-18][fault-26]") {
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
  // Saves are short here: more rounds where none was met in the middle.
  for (int round = 0; round < rounds || (inside == 0 && round < 10 * rounds); ++round) {
    const bool all = random() % 2 == 0;
    CAPTURE(round, all);
    const std::int64_t before = saved_steps(directory).empty() ? -1 : saved_steps(directory).back();
    Process process(endless(directory, "1", async));
    const auto progressed = [&] {
      const auto steps = saved_steps(directory);
      return !steps.empty() && steps.back() > before;
    };
    for (int waited = 0; waited < kBusy * 10000 && process.running() && !progressed(); ++waited) pause_milliseconds(3);
    REQUIRE(process.running());
    const std::vector<pid_t> ranks = process.children("megatron_train");
    REQUIRE(ranks.size() == 8);
    // Not the first save, and then a moment in it or shortly after it.
    std::this_thread::sleep_for(std::chrono::microseconds(random() % 100000));
    for (int waited = 0; waited < 10000 && unfinished() == 0; ++waited) {
      std::this_thread::sleep_for(std::chrono::microseconds(100));
    }
    if (round % 2 == 1) std::this_thread::sleep_for(std::chrono::microseconds(random() % 40000));
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
  std::printf("kills up to step %lld, %d of them have left an unfinished save\n", static_cast<long long>(last), inside);
  CHECK(inside > 0);
  require_same_weights(directory, require_resumable(directory));
}

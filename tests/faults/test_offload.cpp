// Runs whose optimizer state is in files: killed, without room, and with a disk that goes away under them.
#include <unistd.h>

#include <csignal>
#include <filesystem>

#include "faults/checks.h"
#include "faults/runs.h"
#include "support/catch.h"

namespace fs = std::filesystem;

namespace {

constexpr Layout kTwoCopies{1, 1, 2};

Settings in_files(const std::string& folder, Settings more = {}) {
  more.insert(more.end(), {"optimizer.offload=file", "optimizer.offload_folder=" + folder, "optimizer.share=state"});
  return more;
}

/// Files without a name that a process has open below a folder, as paths that reach them.
std::vector<std::string> open_files(pid_t process, const std::string& folder) {
  std::vector<std::string> found;
  std::error_code gone;
  for (fs::directory_iterator at("/proc/" + std::to_string(process) + "/fd", gone), end; !gone && at != end;
       at.increment(gone)) {
    std::error_code unread;
    const std::string target = fs::read_symlink(at->path(), unread).string();
    if (!unread && target.starts_with(folder + "/") && target.ends_with("(deleted)")) found.push_back(at->path());
  }
  return found;
}

}  // namespace

TEST_CASE("offload: killed runs leave nothing of their files and resume", "[fault-18]") {
  const TemporaryFolder folder;
  const std::string disk = folder.file("disk"), run = folder.file("run"), straight = folder.file("straight");
  fs::create_directory(disk);
  const auto length = [](int steps) {
    return Settings{"train.steps=" + std::to_string(steps), "checkpoint.every_steps=2", "train.evaluate_every=0",
                    "optimizer.share=state", "learning_rate.decay=constant"};
  };
  {
    Process process(training(kTwoCopies, run, in_files(disk, length(100000))));
    REQUIRE(wait_for_lines(process, run, 4));
    const std::vector<pid_t> ranks = process.children("megatron_train");
    REQUIRE(ranks.size() == 2);
    for (const pid_t rank : ranks) CHECK(open_files(rank, fs::canonical(disk)).size() == 1);
    for (const pid_t rank : ranks) ::kill(rank, SIGKILL);
    CHECK(process.wait(60).code == 137);
  }
  CHECK(fs::is_empty(disk));
  const int last = static_cast<int>(saved_steps(run).back()) + 3;
  train(kTwoCopies, run, in_files(disk, length(last)));
  train(kTwoCopies, straight, length(last));
  CHECK(same_rank_files(run, straight, last));
  done({checkpoint_program(), "diff", checkpoint(run, last), checkpoint(straight, last)});
}

TEST_CASE("offload: a disk that goes away ends the run with 7 and a checkpoint", "[fault-143]") {
  const TemporaryFolder folder;
  const std::string disk = folder.file("disk"), run = folder.file("run");
  fs::create_directory(disk);
  const Layout layout = GENERATE(kOneRank, kTwoCopies);
  CAPTURE(layout.ranks());
  const auto settings = [](int steps) {
    return Settings{"train.steps=" + std::to_string(steps), "checkpoint.every_steps=2", "train.evaluate_every=0"};
  };
  Process process(training(layout, run, in_files(disk, settings(100000))));
  REQUIRE(wait_for_lines(process, run, 4));
  const std::vector<pid_t> ranks =
      layout.ranks() == 1 ? std::vector<pid_t>{process.pid()} : process.children("megatron_train");
  std::vector<std::string> files;
  for (const pid_t rank : ranks) {
    for (const std::string& file : open_files(rank, fs::canonical(disk))) files.push_back(file);
  }
  REQUIRE(files.size() == static_cast<std::size_t>(layout.ranks()));
  REQUIRE(::truncate(files.back().c_str(), 0) == 0);
  const Finished finished = process.wait(60);
  INFO(finished.out << finished.err);
  CHECK(finished.code == 7);
  CHECK(error_lines(finished) == 1);
  CHECK(mentions(finished.err, "the file of the optimizer's state in " + disk));
  CHECK(mentions(finished.err, "the newest checkpoint is whole"));
  CHECK_FALSE(mentions(finished.err, "the stack is"));
  CHECK(fs::is_empty(disk));
  const std::int64_t saved = saved_steps(run).back();
  const Finished resumed = train(layout, run, in_files(disk, settings(static_cast<int>(saved) + 1)));
  CHECK(mentions(resumed.out, "resuming from " + checkpoint(run, saved)));
}

TEST_CASE("offload: no room for the files is told before a step", "[fault-45]") {
  const TemporaryFolder folder;
  const std::string disk = folder.file("disk");
  fs::create_directory(disk);
  // MPI's own files are of a few MiB; those of these states would have about 100.
  const Settings large = in_files(disk, {"model.hidden_size=512", "model.layers=8"});
  const Command limited = {"bash", "-c",
                           "ulimit -f 40000; exec " + quoted(training(kTwoCopies, folder.file("run"), large))};
  require_refused(
      run_command(limited, 60), 7,
      {"cannot reserve ", " bytes for the optimizer's state in " + disk, "are free", "optimizer.offload_folder"});
  CHECK(saved_steps(folder.file("run")).empty());
  CHECK(fs::is_empty(disk));
}

TEST_CASE("offload: keys that need others, and devices that lack the memory") {
  const TemporaryFolder folder;
  const auto refused = [&](const Settings& settings, int code, const std::vector<std::string>& words) {
    require_refused(run_command(training(kOneRank, folder.file("run"), settings), 30), code, words);
  };
  refused({"optimizer.offload=host", "run.device=cpu"}, 2, {"optimizer.offload = \"host\"", "\"file\""});
  refused({"optimizer.offload_fraction=0.5"}, 2, {"optimizer.offload_fraction belongs to optimizer.offload = "});
  refused({"optimizer.offload_folder=/tmp"}, 2, {"optimizer.offload_folder belongs to optimizer.offload = "});
  refused({"optimizer.offload=file", "optimizer.offload_folder=" + folder.file("missing")}, 7,
          {"missing", "optimizer.offload_folder"});
}

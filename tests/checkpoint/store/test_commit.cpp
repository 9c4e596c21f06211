// The commit: what stays after saves that succeed, fail, are repeated or die.
#include <poll.h>
#include <sys/mount.h>
#include <sys/wait.h>
#include <unistd.h>
#include <atomic>
#include <csignal>

#include "checkpoint/store/folder.h"
#include "checkpoint/store/layouts.h"
#include "data/tokenizer/tokenizer.h"
#include "distributed/comm/thread_communicator.h"
#include "support/catch.h"
#include "support/file_size_limit.h"

using namespace megatron;
using namespace megatron::test;
using Names = std::vector<std::string>;

TEST_CASE("retention keeps the newest complete ones", "[checkpoint][fault-25]") {
  const TemporaryFolder folder;
  const std::string run = folder.file("run"), checkpoints = folder.file("run/checkpoints");
  const Layout layout = split_along(kFewTensors, 2, 0);
  for (const int step : {1, 2, 3}) save_as(run, kFewTensors, layout, step, 0);
  CHECK(names_in(checkpoints) == Names{"latest", "step_00000001", "step_00000002", "step_00000003"});
  save_as(run, kFewTensors, layout, 4, 2);
  CHECK(names_in(checkpoints) == Names{"latest", "step_00000003", "step_00000004"});
  const auto found = find_checkpoints(run);
  REQUIRE(found.size() == 2);
  CHECK(found[0].step == 4);
  CHECK(found[0].path == checkpoints + "/step_00000004");
  CHECK(found[1].step == 3);

  // An incomplete one does not count as one of the two.
  std::filesystem::remove(checkpoints + "/step_00000004/rank_00001.h5");
  CHECK(find_checkpoints(run).size() == 1);
  save_as(run, kFewTensors, layout, 5, 2);
  CHECK(names_in(checkpoints) == Names{"latest", "step_00000003", "step_00000005"});
}

TEST_CASE("removal: files of every tokenizer go with a checkpoint", "[checkpoint]") {
  const TemporaryFolder folder;
  const std::string path = folder.file("step_00000001");
  std::filesystem::create_directories(path);
  for (const char* name : kTokenizerFiles) write_file(path + "/" + name, "x");
  CHECK(remove_checkpoint(path).empty());
  CHECK_FALSE(std::filesystem::exists(path));
  std::filesystem::create_directories(path);
  write_file(path + "/notes.txt", "mine");
  CHECK_THAT(remove_checkpoint(path), Contains("could not be removed"));
  CHECK(contents_of(path + "/notes.txt") == "mine");
}

TEST_CASE("commit: while nothing is learned saves replace only each other", "[checkpoint][fault-77]") {
  const TemporaryFolder folder;
  const std::string run = folder.file("run"), checkpoints = folder.file("run/checkpoints");
  const Layout layout = split_along(kFewTensors, 2, 0);
  for (const int step : {1, 2, 3}) save_as(run, kFewTensors, layout, step, 2);
  for (const int step : {4, 5, 6}) {
    save_with({.keep_last = 2, .nothing_learned_since = 3}, run, kFewTensors, layout, step);
  }
  CHECK(names_in(checkpoints) == Names{"latest", "step_00000002", "step_00000003", "step_00000006"});
  save_as(run, kFewTensors, layout, 7, 2);  // it learns again
  CHECK(names_in(checkpoints) == Names{"latest", "step_00000006", "step_00000007"});
}

TEST_CASE("retention: a checkpoint that was found damaged takes no place", "[checkpoint]") {
  const TemporaryFolder folder;
  const std::string run = folder.file("run"), checkpoints = folder.file("run/checkpoints");
  const Layout layout = split_along(kFewTensors, 2, 0);
  for (const int step : {10, 20}) save_as(run, kFewTensors, layout, step, 2);
  const std::string file = checkpoints + "/step_00000020/rank_00000.h5", whole = contents_of(file);
  std::string bytes = whole;
  bytes[bytes.size() / 2] ^= 1;
  write_file(file, bytes);
  REQUIRE(load_newest(run, kFewTensors, layout).step == 10);
  write_file(file, whole);  // a disk that had only been read wrongly
  REQUIRE(load_newest(run, kFewTensors, layout).step == 20);
  write_file(file, bytes);
  REQUIRE(load_newest(run, kFewTensors, layout).step == 10);
  save_as(run, kFewTensors, layout, 30, 2);
  CHECK(names_in(checkpoints) == Names{"latest", "step_00000010", "step_00000030"});
}

TEST_CASE("after falling back, the abandoned future cannot outlive the new past", "[checkpoint]") {
  const TemporaryFolder folder;
  const std::string run = folder.file("run");
  const Layout layout = split_along(kFewTensors, 2, 0);
  for (const int step : {10, 20}) save_as(run, kFewTensors, layout, step, 1 + step / 20);
  std::string bytes = contents_of(folder.file("run/checkpoints/step_00000020/rank_00000.h5"));
  bytes[bytes.size() / 2] ^= 1;
  write_file(folder.file("run/checkpoints/step_00000020/rank_00000.h5"), bytes);
  REQUIRE(load_newest(run, kFewTensors, layout).step == 10);
  save_as(run, kFewTensors, layout, 15, 1);
  const Loaded loaded = load_newest(run, kFewTensors, layout);
  CHECK(loaded.step == 15);
  CHECK(loaded.warnings.empty());
}

TEST_CASE("a step can be saved again, on another layout", "[checkpoint]") {
  const TemporaryFolder folder;
  save_as(folder.file("run"), kFewTensors, split_along(kFewTensors, 3, 0), 7);
  save_as(folder.file("run"), kFewTensors, split_along(kFewTensors, 2, 1), 7);
  CHECK(names_in(folder.file("run/checkpoints")) == Names{"latest", "step_00000007"});
  CHECK(names_in(folder.file("run/checkpoints/step_00000007")) ==
        Names{"manifest.json", "rank_00000.h5", "rank_00001.h5"});
  CHECK(load_newest(folder.file("run"), kFewTensors, split_along(kFewTensors, 1, 0)).wrong == 0);
}

TEST_CASE("leftovers of ours are cleaned, foreign files are left alone", "[checkpoint][fault-21]") {
  const TemporaryFolder folder;
  const std::string run = folder.file("run"), checkpoints = folder.file("run/checkpoints");
  const Layout layout = split_along(kFewTensors, 2, 0);
  save_as(run, kFewTensors, layout, 1);
  std::filesystem::copy(checkpoints + "/step_00000001", checkpoints + "/.tmp_step_00000002");
  std::filesystem::copy(checkpoints + "/step_00000001", checkpoints + "/.old_step_00000001");
  std::filesystem::create_directories(checkpoints + "/.tmp_step_00000003");
  write_file(checkpoints + "/.tmp_step_00000003/rank_00007.h5", "half a fi");
  std::filesystem::create_directories(checkpoints + "/.tmp_step_3");
  std::filesystem::create_directories(checkpoints + "/.tmp_step_00000004");
  write_file(checkpoints + "/.tmp_step_00000004/thesis.tex", "mine");
  write_file(checkpoints + "/notes.txt", "mine");
  write_file(checkpoints + "/latest.0123abcd.tmp", "step_0");
  CHECK(load_newest(run, kFewTensors, layout).step == 1);  // reading cleans nothing: another process may be saving
  CHECK(names_in(checkpoints + "/.tmp_step_00000002").size() == 3);

  const bool by_saving = GENERATE(true, false);
  if (by_saving) save_as(run, kFewTensors, layout, 2);
  if (!by_saving) clean_checkpoints(run);
  Names expected{".tmp_step_00000004", ".tmp_step_3", "latest", "notes.txt", "step_00000001"};
  if (by_saving) expected.push_back("step_00000002");
  CHECK(names_in(checkpoints) == expected);
  CHECK(names_in(checkpoints + "/.tmp_step_00000004") == Names{"thesis.tex"});
}

TEST_CASE("a checkpoint that lost its name between two renames gets it back", "[checkpoint][fault-21]") {
  const TemporaryFolder folder;
  const Layout layout = split_along(kFewTensors, 2, 0);
  save_as(folder.file("run"), kFewTensors, layout, 6);
  std::filesystem::rename(folder.file("run/checkpoints/step_00000006"),
                          folder.file("run/checkpoints/.old_step_00000006"));
  clean_checkpoints(folder.file("run"));
  CHECK(load_newest(folder.file("run"), kFewTensors, layout).step == 6);
}

TEST_CASE("one rank that cannot write fails the save everywhere and harms nothing",
          "[checkpoint][fault-25][fault-45]") {
  const TemporaryFolder folder;
  const std::string run = folder.file("run"), checkpoints = folder.file("run/checkpoints");
  const Layout layout = split_along(kFewTensors, 3, 0);
  save_as(run, kFewTensors, layout, 1);
  const std::vector<GlobalTensor> large{{"weight", {6, 4}}, {"bias", {9}}, {"large", {200000}}};
  Layout uneven = split_along(large, 3, 0);
  for (std::vector<Part>& parts : uneven) parts.pop_back();
  uneven[1].push_back({2, {{0}, {200000}}, 0, 200000});
  const std::size_t open_files = names_in("/proc/self/fd").size();
  for (int attempt = 0; attempt < 3; ++attempt) {
    std::atomic<int> told{0};
    {
      const FileSizeLimit limit(300000);
      run_as_threads(3, [&](Communicator& world) {
        const SliceMemory memory(large, uneven[static_cast<std::size_t>(world.rank())], 2, 2);
        CpuDevice device;
        const Error error = error_of([&] { save_checkpoint(world, run, state_at(2), memory.slices(), device, {1}); });
        told += error.exit_code() == 7 && std::string(error.what()).find("rank 1") == 0 &&
                std::string(error.what()).find("File too large") != std::string::npos;
      });
    }
    CHECK(told == 3);
    CHECK(names_in(checkpoints) == Names{"latest", "step_00000001"});
    CHECK(load_newest(run, kFewTensors, layout).wrong == 0);
  }
  CHECK(names_in("/proc/self/fd").size() == open_files);  // else a removed file keeps its disk space
  save_as(run, large, uneven, 2, 1);                      // the same step, after the disk has been cleared
  CHECK(names_in(checkpoints) == Names{"latest", "step_00000002"});
  CHECK(load_newest(run, large, split_along(large, 2, 0)).wrong == 0);
}

TEST_CASE("a disk without room is noticed before anything is written", "[checkpoint][fault-45]") {
  const TemporaryFolder folder;
  const std::string disk = folder.file("disk");
  std::filesystem::create_directories(disk);
  if (::mount("none", disk.c_str(), "tmpfs", 0, "size=4m") != 0) {
    WARN("needs the right to mount; not run");
    return;
  }
  const std::vector<GlobalTensor> large{{"large", {1000000}}};
  const Layout layout = split_along(large, 2, 0);
  save_as(disk + "/run", kFewTensors, split_along(kFewTensors, 2, 0), 1);
  const Error error = error_of([&] { save_as(disk + "/run", large, layout, 2); });
  CHECK(error.exit_code() == 7);
  CHECK_THAT(error.what(), Contains("bytes) are free"));
  CHECK(names_in(disk + "/run/checkpoints") == Names{"latest", "step_00000001"});
  ::umount(disk.c_str());
}

TEST_CASE("a place that cannot be written is refused by its path", "[checkpoint][fault-46]") {
  const TemporaryFolder folder;
  write_file(folder.file("file"), "not a folder");
  std::filesystem::create_symlink("loop", folder.file("loop"));
  for (const std::string& path : {folder.file("file"), folder.file("file/run"), folder.file("loop/run"),
                                  folder.file(std::string(300, 'n') + "/run"), std::string("/proc/nowhere/run")}) {
    const Error error = error_of([&] { check_writable(path); });
    CHECK(error.exit_code() == 7);
    CHECK_THAT(error.what(), Contains(path));
    const Error save_error = error_of([&] { save_as(path, kFewTensors, split_along(kFewTensors, 2, 0), 1); });
    CHECK(save_error.exit_code() == 7);
  }
  check_writable(folder.file("new/with space/ünïcode"));
  CHECK(names_in(folder.file("new/with space/ünïcode")).empty());
}

TEST_CASE("commit: kill -9 during a save leaves a checkpoint to resume from", "[checkpoint][fault-18]") {
  const TemporaryFolder folder;
  const std::string run = folder.file("run");
  const Layout layout = split_along(kFewTensors, 2, 0);
  std::mt19937 random(99);
  int last_told = 0, killed_inside = 0;
  for (int round = 0; round < 30; ++round) {
    int tell[2];
    REQUIRE(::pipe(tell) == 0);
    const pid_t child = ::fork();
    REQUIRE(child >= 0);
    if (child == 0) {  // saves as fast as it can, telling each step when its save has returned
      for (int step = last_told + 1;; ++step) {
        save_as(run, kFewTensors, layout, step, 2);
        if (::write(tell[1], &step, sizeof step) != sizeof step) ::_exit(1);
      }
    }
    ::close(tell[1]);
    int told = 0;
    const bool first = ::read(tell[0], &told, sizeof told) == sizeof told;  // the child has come to life
    if (first) last_told = told;
    ::usleep(static_cast<useconds_t>(random() % 30000));
    ::kill(child, SIGKILL);
    while (::read(tell[0], &told, sizeof told) == sizeof told) last_told = told;
    ::close(tell[0]);
    int status = 0;
    REQUIRE(::waitpid(child, &status, 0) == child);
    REQUIRE(first);
    REQUIRE(WIFSIGNALED(status));

    for (const std::string& name : names_in(run + "/checkpoints")) killed_inside += name.starts_with(".tmp_step_");
    const Loaded loaded = load_newest(run, kFewTensors, split_along(kFewTensors, 1 + round % 3, round % 2));
    INFO("round " << round << ", last told " << last_told);
    REQUIRE((loaded.step == last_told || loaded.step == last_told + 1));
    REQUIRE(loaded.wrong == 0);
    REQUIRE(loaded.warnings.empty());
    REQUIRE(loaded.state.extra == state_at(loaded.step).extra);
    last_told = static_cast<int>(loaded.step);
  }
  CHECK(killed_inside > 0);  // else this has proven little
  save_as(run, kFewTensors, layout, last_told + 1, 2);
  for (const std::string& name : names_in(run + "/checkpoints")) CHECK_THAT(name, !StartsWith("."));
}

// File systems that fail while a run is under way.
#include <sys/mount.h>

#include "faults/checks.h"
#include "faults/runs.h"
#include "support/catch.h"

namespace fs = std::filesystem;

namespace {

// A run on a separate small disk, unmounted at the end.
class SmallDisk {
 public:
  SmallDisk(const std::string& path, const char* size) : path_(path) {
    fs::create_directory(path);
    mounted_ = ::mount("tmpfs", path.c_str(), "tmpfs", 0, size) == 0;
  }
  ~SmallDisk() {
    if (mounted_) ::umount2(path_.c_str(), MNT_DETACH);
  }
  bool mounted() const { return mounted_; }
  void fill() const {
    std::ofstream file(path_ + "/filler", std::ios::binary);
    const std::string block(1 << 16, 'x');
    while (file.write(block.data(), static_cast<std::streamsize>(block.size())).flush()) {
    }
  }

 private:
  std::string path_;
  bool mounted_ = false;
};

}  // namespace

TEST_CASE("a disk too small for a checkpoint is refused at the start", "[fault-45]") {
  const TemporaryFolder folder;
  const SmallDisk disk(folder.file("disk"), "size=1m");
  if (!disk.mounted()) {
    WARN("no right to mount a small file system: not tested");
    return;
  }
  const Finished finished =
      run_command(training(kTwoTensorRanks, folder.file("disk/run"), {"checkpoint.every_steps=2"}), 30);
  INFO(finished.out << finished.err);
  CHECK(finished.code == 7);
  CHECK(error_lines(finished) == 1);
  CHECK(mentions(finished.err, "free"));
  CHECK_FALSE(mentions(finished.out, "1/8"));
}

TEST_CASE("a disk that is full: no tool leaves a folder or half a file", "[fault-45]") {
  const TemporaryFolder folder;
  const std::string place = folder.file("disk");
  const SmallDisk disk(place, "size=64k");
  if (!disk.mounted()) {
    WARN("no right to mount a small file system: not tested");
    return;
  }
  const std::string run = folder.file("run"), text = folder.file("text.jsonl");
  fs::create_directory(run);
  for (const char* file : {"metrics.jsonl", "config.toml", "run.log"}) {
    fs::copy_file(straight_run(kOneRank) + "/" + file, run + "/" + file);
  }
  done({preprocess_program(), "sample-corpus", "--output", text, "--megabytes", "0.2"});
  const std::vector<Command> commands = {
      {preprocess_program(), "train-tokenizer", "--input", text, "--output", place + "/new/vocabulary", "--vocab-size",
       "2000"},
      {preprocess_program(), "--input", text, "--output", place + "/new/shards", "--tokenizer", "byte"},
      {preprocess_program(), "sample-corpus", "--output", place + "/new/text", "--megabytes", "1"},
      {checkpoint_program(), "merge", straight_run(kOneRank), place + "/new/merged"},
      {train_program(), "--report", run, "--output", place + "/page.html"}};
  disk.fill();
  for (const Command& command : commands) {
    CAPTURE(command);
    const Finished finished = run_command(command, 60);
    INFO(finished.err);
    CHECK(finished.code == 7);
    CHECK(error_lines(finished) == 1);
    CHECK((mentions(finished.err, "free some space") || mentions(finished.err, "make room")));
    CHECK(std::distance(fs::directory_iterator(place), fs::directory_iterator()) == 1);  // the file that fills it
  }
}

TEST_CASE("full disk: training continues with the old checkpoint and ends with 7", "[fault-45]") {
  const TemporaryFolder folder;
  const SmallDisk disk(folder.file("disk"), "size=12m");
  if (!disk.mounted()) {
    WARN("no right to mount a small file system: not tested");
    return;
  }
  const std::string run = folder.file("disk/run");
  const char* const async = GENERATE("false", "true");
  CAPTURE(async);
  const auto job = [&](const std::string& steps) {
    return training(kTwoTensorRanks, run,
                    {"train.steps=" + steps, "train.evaluate_every=0", "checkpoint.every_steps=20",
                     std::string("checkpoint.async=") + async});
  };
  Process process(job("400"));
  for (int waited = 0; waited < kBusy * 5000 && saved_steps(run).empty() && process.running(); ++waited)
    pause_milliseconds(3);
  disk.fill();
  const Finished finished = process.wait(60);
  INFO(finished.out << finished.err);
  CHECK(finished.code == 7);
  CHECK(error_lines(finished) == 1);
  CHECK(mentions(finished.err, "training continues, the checkpoint of step "));
  CHECK(mentions(finished.err, "the last step, 400, could not be saved"));
  CHECK(mentions(finished.out, "400/400"));
  CHECK_FALSE(has_temporary_folder(run));
  REQUIRE_FALSE(saved_steps(run).empty());
  const std::int64_t last = saved_steps(run).back();
  CHECK(last < 400);

  // With room again it resumes from there, and nothing is lost.
  fs::remove(folder.file("disk/filler"));
  const Finished resumed = run_command(job(std::to_string(last + 10)), 30);
  INFO(resumed.out << resumed.err);
  CHECK(resumed.code == 0);
  CHECK(mentions(resumed.out, "resuming from " + checkpoint(run, last)));
}

TEST_CASE("a first save that fails ends the run with 7, and leaves nothing behind", "[fault-45]") {
  const TemporaryFolder folder;
  const std::string run = folder.file("run");
  // Rank files of this model have 19 MB; what MPI shares memory through stays below the limit.
  const Command limited = {
      "bash", "-c",
      "ulimit -f 17500; exec " +
          quoted(training(kTwoTensorRanks, run, {"checkpoint.every_steps=2", "model.hidden_size=256"}))};
  const Finished finished = run_command(limited, 30);
  INFO(finished.out << finished.err);
  CHECK(finished.code == 7);
  CHECK(error_lines(finished) == 1);
  CHECK(mentions(finished.err, "File too large"));
  CHECK(saved_steps(run).empty());
  CHECK_FALSE(has_temporary_folder(run));
}

TEST_CASE("a log on a full device costs its lines and nothing else", "[fault-45]") {
  const TemporaryFolder folder;
  const std::string run = folder.file("run");
  fs::create_directory(run);
  fs::create_symlink("/dev/full", run + "/run.log");
  train(kTwoTensorRanks, run, {"checkpoint.every_steps=4"});
  CHECK(saved_steps(run) == std::vector<std::int64_t>{4, 8});
  CHECK(numbers(run, "train").size() == kPlannedSteps);
}

TEST_CASE("filesystem: log and metrics may be deleted or moved during a run", "[fault-48]") {
  const TemporaryFolder folder;
  const std::string run = folder.file("run");
  Process process(training(kTwoTensorRanks, run, {"train.steps=1000000", "train.evaluate_every=0"}));
  REQUIRE(wait_for_lines(process, run, 10));
  fs::remove(run + "/metrics.jsonl");
  fs::rename(run + "/run.log", run + "/run.log.1");
  REQUIRE(wait_for_lines(process, run, 10));  // begun anew
  fs::rename(run + "/metrics.jsonl", run + "/metrics.1");
  const std::int64_t before = metrics_lines(run);
  CHECK(before == 0);
  pause_milliseconds(300);
  process.signal(SIGUSR1);
  const Finished finished = process.wait(30);
  INFO(finished.out << finished.err);
  CHECK(finished.code == 75);
  CHECK(error_lines(finished) == 0);
  REQUIRE(saved_steps(run).size() == 1);
  // A file that was moved away is still written: it is the same file, as with any program's log.
  const std::int64_t saved = saved_steps(run).back();
  CHECK(mentions(contents_of(run + "/metrics.1") + contents_of(run + "/metrics.jsonl"),
                 "\"step\":" + std::to_string(saved) + ","));
}

TEST_CASE("a shard that is emptied or zeroed under a run ends it with 3", "[fault-54]") {
  for (const bool zeroed : {false, true}) {
    CAPTURE(zeroed);
    const TemporaryFolder folder;
    const std::string run = folder.file("run"), shard = folder.file("own-00000.h5");
    fs::copy(data_prefix() + "-00000.h5", shard);
    Process process(training(kTwoTensorRanks, run,
                             {"train.steps=1000000", "train.evaluate_every=0", "data.train=" + folder.file("own")}));
    REQUIRE(wait_for_lines(process, run, 3));
    const auto bytes = fs::file_size(shard);
    fs::resize_file(shard, 0);
    if (zeroed) fs::resize_file(shard, bytes);
    const Finished finished = process.wait(60);
    INFO(finished.out << finished.err);
    CHECK(finished.code == 3);
    CHECK(error_lines(finished) == 1);
    CHECK(mentions(finished.err, shard));
  }
}

TEST_CASE("a shard that is replaced under a run is read as it was", "[fault-54]") {
  const TemporaryFolder folder;
  const std::string run = folder.file("run"), shard = folder.file("own-00000.h5");
  fs::copy(data_prefix() + "-00000.h5", shard);
  const Settings settings{"train.steps=12", "train.evaluate_every=0", "data.train=" + folder.file("own")};
  Process process(training(kTwoTensorRanks, run, settings));
  REQUIRE(wait_for_lines(process, run, 2));
  write_file(folder.file("other"), "something else");
  fs::rename(folder.file("other"), shard);
  const Finished finished = process.wait(60);
  INFO(finished.out << finished.err);
  CHECK(finished.code == 0);
  CHECK(numbers(run, "train").size() == 12);
}

TEST_CASE("checkpoints removed under a run are written again by its next save", "[fault-57]") {
  const TemporaryFolder folder;
  const std::string run = folder.file("run"), checkpoints = run + "/checkpoints";
  const auto removed = [&] {
    std::error_code busy;  // one may come while they are removed
    for (int i = 0; i < 100 && (fs::remove_all(checkpoints, busy), busy); ++i) pause_milliseconds(5);
  };
  Process process(
      training(kTwoTensorRanks, run, {"train.steps=1000000", "train.evaluate_every=0", "checkpoint.every_steps=20"}));
  REQUIRE(wait_for_lines(process, run, 25));
  removed();
  const std::int64_t before = metrics_lines(run);
  REQUIRE(wait_for_lines(process, run, before + 45));
  CHECK(fs::exists(checkpoints));
  process.signal(SIGUSR1);
  const Finished finished = process.wait(60);
  INFO(finished.out << finished.err);
  CHECK(finished.code == 75);
  REQUIRE_FALSE(saved_steps(run).empty());

  // Where none can be written any more, the one that was removed is not called intact.
  int attempt = 0;
  Process second(
      training(kTwoTensorRanks, run, {"train.steps=1000000", "train.evaluate_every=0", "checkpoint.every_steps=20"}));
  REQUIRE(wait_for_lines(second, run, metrics_lines(run) + 25));
  do {  // renamed, since a save that fails halfway through a removal may still find the newest one, and say so
    std::error_code absent;
    fs::rename(checkpoints, folder.file("gone" + std::to_string(attempt++)), absent);
    std::ofstream(checkpoints).close();
  } while (fs::is_directory(checkpoints));  // a save came between
  REQUIRE(wait_for_lines(second, run, metrics_lines(run) + 45));
  second.signal(SIGUSR1);
  const Finished failed = second.wait(60);
  INFO(failed.out << failed.err);
  CHECK(failed.code == 7);
  CHECK(mentions(failed.err, "has been removed: there is none until the next save"));
  CHECK_FALSE(mentions(failed.err, "is intact"));
}

TEST_CASE("a run directory removed under a run is made again by its next save", "[fault-57]") {
  const TemporaryFolder folder;
  const std::string run = folder.file("run");
  Process process(
      training(kTwoTensorRanks, run, {"train.steps=1000000", "train.evaluate_every=0", "checkpoint.every_steps=5"}));
  REQUIRE(wait_for_lines(process, run, 10));
  std::error_code busy;  // files may come while it is removed
  for (int i = 0; i < 100 && (fs::remove_all(run, busy), fs::exists(run)); ++i) pause_milliseconds(5);
  pause_milliseconds(500);
  process.signal(SIGUSR1);
  const Finished finished = process.wait(60);
  INFO(finished.out << finished.err);
  CHECK_FALSE(finished.timed_out);
  CHECK(finished.code == 75);
  CHECK(saved_steps(run).size() >= 1);
}

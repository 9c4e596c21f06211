// Jobs that must not begin: ranks that disagree, and directories that are taken or cannot be written.
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#include "faults/checks.h"
#include "support/catch.h"

namespace fs = std::filesystem;

namespace {

/// Two ranks, each with its own command. (Open MPI 5.0.7 crashes on `mpirun A : B`.)
Finished run_two(const Command& rank_0, const Command& rank_1) {
  const std::string chosen = "((OMPI_COMM_WORLD_RANK == 1)) || exec " + quoted(rank_0) + "; exec " + quoted(rank_1);
  return run_command(launched(2, {"bash", "-c", chosen}), 30);
}

Command alone(const std::string& program, const std::string& input, const std::string& directory) {
  return {program, input, "--set", "run.directory=" + directory, "--set", "parallel.tensor=2"};
}

std::string replaced(std::string text, const std::string& part, const std::string& by) {
  text.replace(text.find(part), part.size(), by);
  return text;
}

/// Whether system calls can be made to fail here; says so where not.
bool can_inject(const char* what) {
  if (run_command({"strace", "-qq", "-o", "/dev/null", "true"}).code == 0) return true;
  WARN("no strace here: not tested: " << what);
  return false;
}

/// `command`, for which every `call` on `path` fails with `error`.
Command with_injected(const std::string& path, const std::string& call, const std::string& error,
                      const Command& command) {
  Command whole = {"strace", "-f", "-qq", "-o", "/dev/null", "-P", path};
  whole.insert(whole.end(), {"-e", "trace=" + call, "-e", "inject=" + call + ":error=" + error});
  whole.insert(whole.end(), command.begin(), command.end());
  return whole;
}

}  // namespace

TEST_CASE("ranks with different input files are refused, with rank and line", "[fault-6]") {
  const TemporaryFolder folder;
  const std::string run = folder.file("run"), other = folder.file("other.toml");
  const std::string text = contents_of(input_file());
  write_file(other, replaced(text, "warmup_steps = 2", "warmup_steps = 3"));
  require_refused(run_two(alone(train_program(), input_file(), run), alone(train_program(), other, run)), 2,
                  {"rank 1 on ", "warmup_steps = 3", "warmup_steps = 2"});

  // The same file, in which a variable is something else on the other rank.
  const std::string variable = folder.file("variable.toml");
  write_file(variable, replaced(text, data_prefix(), "${PLACE}/corpus"));
  const std::string place = fs::path(data_prefix()).parent_path().string();
  const auto with_place = [&](const std::string& value) {
    Command command = {"env", "PLACE=" + value};
    for (const std::string& word : alone(train_program(), variable, run)) command.push_back(word);
    return command;
  };
  require_refused(run_two(with_place(place), with_place(place + "/../data")), 2, {"rank 1 on ", "/../data"});

  // One that cannot even be read, on one rank only.
  write_file(other, replaced(text, "warmup_steps", "warm_up_steps"));
  const Finished unread = run_two(alone(train_program(), input_file(), run), alone(train_program(), other, run));
  INFO(unread.out << unread.err);
  CHECK(unread.code == 2);
  CHECK(mentions(unread.err, "did you mean 'warmup_steps'"));
  CHECK_FALSE(fs::exists(run));
}

TEST_CASE("input files that are none, on all ranks", "[fault-52]") {
  const TemporaryFolder folder;
  const std::string huge = folder.file("huge.toml"), deep = folder.file("deep.toml");
  write_file(huge, "[model]\n");
  fs::resize_file(huge, std::uintmax_t{1} << 30);
  std::string dotted = "a";
  for (int i = 0; i < 100000; ++i) dotted += ".a";
  write_file(deep, dotted + " = 1\n");
  for (const std::string& input : {huge, deep}) {
    // 400 MB of addresses are enough to say no.
    const Finished finished = run_command(launched(2, {"bash", "-c",
                                                       "ulimit -v 400000; exec " + train_program() + " " + input +
                                                           " --set run.directory=" + folder.file("run")}),
                                          30);
    require_refused(finished, 2, {input});
    CHECK_FALSE(fs::exists(folder.file("run")));
  }
}

TEST_CASE("input file: a pipe is read on one rank and refused on several", "[fault-81]") {
  const TemporaryFolder folder;
  const std::string run = folder.file("run"), pipe = folder.file("pipe");
  const Finished substituted = run_command(
      {"bash", "-c", train_program() + " <(cat " + input_file() + ") --set train.steps=1 --set run.directory=" + run},
      30);
  INFO(substituted.out << substituted.err);
  CHECK(substituted.code == 0);
  CHECK(saved_steps(run) == std::vector<std::int64_t>{1});

  REQUIRE(::mkfifo(pipe.c_str(), 0600) == 0);
  const Command several = launched(2, alone(train_program(), pipe, folder.file("none")));
  require_refused(run_command(several, 30), 2, {pipe + ": error: this is a pipe", "2 ranks"});
  Process waiting(alone(train_program(), pipe, folder.file("none")));  // no process writes
  pause_milliseconds(300);
  CHECK(waiting.running());
  waiting.signal(SIGTERM);
  const Finished ended = waiting.wait(10);
  CHECK_FALSE(ended.timed_out);
  CHECK(ended.code == 128 + SIGTERM);
  CHECK_FALSE(fs::exists(folder.file("none")));
}

TEST_CASE("ranks with different builds are refused, with both", "[fault-41]") {
  const TemporaryFolder folder;
  const std::string run = folder.file("run"), other = folder.file("megatron_train");
  fs::copy_file(fs::canonical(train_program()), other);
  std::ofstream(other, std::ios::binary | std::ios::app) << '\0';  // runs as before, but is not the same program
  require_refused(run_two(alone(train_program(), input_file(), run), alone(other, input_file(), run)), 2,
                  {": another build than on rank 0", "Open MPI", "program ", "(rank 0 on "});
  CHECK_FALSE(fs::exists(run));
  const Finished same = run_two(alone(other, input_file(), run), alone(other, input_file(), run));
  INFO(same.out << same.err);
  CHECK(same.code == 0);
}

TEST_CASE("two jobs on one directory: the second is refused by the first's name", "[fault-33]") {
  const TemporaryFolder folder;
  const std::string run = folder.file("run");
  const auto job = [&](const std::string& steps) {
    return training(kTwoTensorRanks, run,
                    {"train.steps=" + steps, "train.evaluate_every=0", "checkpoint.every_steps=50"});
  };
  Process first(job("1000000"));
  REQUIRE(wait_for_lines(first, run, 60));
  const std::vector<pid_t> ranks = first.children("megatron_train");
  REQUIRE(ranks.size() == 2);
  std::string host(256, '\0');
  ::gethostname(host.data(), host.size() - 1);
  require_refused(run_command(job("1000000"), 30), 7,
                  {run + " is in use by process " + std::to_string(ranks[0]) + " on " + host.c_str()});
  fs::remove(run + "/lock");  // as people do who take it for a stale one
  require_refused(run_command(job("1000000"), 30), 7,
                  {run + " is in use by process " + std::to_string(ranks[0]) + " on " + host.c_str()});
  const std::int64_t saved = saved_steps(run).back();
  for (int waited = 0; waited < kBusy * 20000 && (saved_steps(run).back() == saved || !fs::exists(run + "/lock"));
       ++waited) {
    pause_milliseconds(3);
  }
  CHECK(first.running());
  for (const pid_t rank : ranks) ::kill(rank, SIGKILL);
  first.wait(10);
  CHECK(mentions(contents_of(run + "/lock"), std::to_string(ranks[0])));  // is still there, and blocks no run
  const std::string last = std::to_string(saved_steps(run).back() + 2);
  const Finished second = run_command(job(last), 30);
  INFO(second.out << second.err);
  CHECK(second.code == 0);
}

TEST_CASE("a file system without locks costs a warning", "[fault-33]") {
  const TemporaryFolder folder;
  const std::string run = folder.file("run");
  fs::create_directory(run);
  write_file(run + "/lock", "");
  if (!can_inject("a file system without locks")) return;
  const Command command = with_injected(run + "/lock", "fcntl", "ENOLCK", training(kOneRank, run, {"train.steps=1"}));
  const Finished finished = run_command(command, 30);
  INFO(finished.out << finished.err);
  CHECK(finished.code == 0);
  CHECK(mentions(finished.err, "cannot be locked"));
}

TEST_CASE("starts: checkpoints that cannot be read are an error and stay", "[fault-20]") {
  const TemporaryFolder folder;
  const std::string run = folder.file("run");
  train(kOneRank, run, {"checkpoint.every_steps=2", "train.steps=4"});
  const auto before = all_files(run);
  if (!can_inject("unreadable checkpoints")) return;
  const Command command = with_injected(run + "/checkpoints", "openat", "EIO",
                                        training(kOneRank, run, {"checkpoint.every_steps=2", "train.steps=6"}));
  require_refused(run_command(command, 30), 7, {"cannot read " + run + "/checkpoints"});
  CHECK(all_files(run) == before);
}

TEST_CASE("starts: a run directory on each node's own disk is refused at once", "[fault-78]") {
  const TemporaryFolder folder;
  const std::string run = folder.file("run");
  fs::create_directory(run);
  if (run_command({"unshare", "--mount", "mount", "-t", "tmpfs", "tmpfs", run}).code != 0) {
    WARN("no right to mount a file system: not tested");
    return;
  }
  const Command job = alone(train_program(), input_file(), run);
  const auto with_own_disk = [&](const std::string& before) {
    Command command = {"unshare", "--mount", "bash", "-c", before + " exec \"$@\"", "bash"};
    command.insert(command.end(), job.begin(), job.end());
    return command;
  };
  // Another node, as far as the file system goes.
  const Finished split = run_two(job, with_own_disk("mount -t tmpfs tmpfs '" + run + "' &&"));
  require_refused(split, 7,
                  {"rank 1 on ", ": run.directory = \"" + run + "\" is another directory here than on rank 0",
                   "that all nodes share"});
  CHECK_FALSE(mentions(split.out, "1/8"));

  // Without checkpoints only rank 0 writes.
  Command lone = with_own_disk("mount -t tmpfs tmpfs '" + run + "' &&"), unsaved = job;
  for (Command* command : {&lone, &unsaved}) {
    command->insert(command->end(), {"--set", "checkpoint.every_steps=never"});
  }
  const Finished never = run_two(unsaved, lone);
  INFO(never.err);
  CHECK(never.code == 0);
  CHECK(metrics_lines(run) > 0);
  CHECK(saved_steps(run).empty());
  fs::remove_all(run);
  fs::create_directory(run);

  // One node that may only read it.
  const Finished unwritable = run_two(job, with_own_disk("mount --bind -o ro '" + run + "' '" + run + "' &&"));
  require_refused(unwritable, 7, {": cannot create " + run + "/checkpoints", "Read-only"});
  CHECK_FALSE(mentions(unwritable.out, "1/8"));
  CHECK(all_files(run).empty());
}

TEST_CASE("starts: a checkpoints folder that cannot be written is refused at once", "[fault-46]") {
  const TemporaryFolder folder;
  const std::string file = folder.file("file"), fixed = folder.file("fixed");
  fs::create_directory(file);
  write_file(file + "/checkpoints", "");
  const Finished refused = run_command(training(kTwoTensorRanks, file), 30);
  require_refused(refused, 7, {file + "/checkpoints"});
  CHECK_FALSE(mentions(refused.out, "1/8"));

  fs::create_directories(fixed + "/checkpoints");
  if (::mount("tmpfs", (fixed + "/checkpoints").c_str(), "tmpfs", MS_RDONLY, "size=1m") != 0) {
    WARN("no right to mount a read-only file system: not tested");
    return;
  }
  const Finished read_only = run_command(training(kTwoTensorRanks, fixed), 30);
  ::umount((fixed + "/checkpoints").c_str());
  require_refused(read_only, 7, {fixed + "/checkpoints", "Read-only"});
  CHECK_FALSE(mentions(read_only.out, "1/8"));
}

TEST_CASE("a directory that cannot be written is refused before the first step", "[fault-46]") {
  const TemporaryFolder folder;
  write_file(folder.file("file"), "");
  fs::create_symlink(folder.file("b"), folder.file("a"));
  fs::create_symlink(folder.file("a"), folder.file("b"));
  struct BadFolder {
    const char* name;
    std::string path;
  };
  const BadFolder places[] = {{"is a file", folder.file("file")},
                              {"below a file", folder.file("file/run")},
                              {"a loop of links", folder.file("a/run")},
                              {"a name of 300 characters", folder.file(std::string(300, 'n'))}};
  std::vector<Command> commands;
  for (const BadFolder& place : places) commands.push_back(training(kTwoTensorRanks, place.path));
  const std::vector<Finished> all = run_commands(commands, 2, 30);
  for (std::size_t i = 0; i < all.size(); ++i) {
    CAPTURE(places[i].name);
    require_refused(all[i], 7, {places[i].path.substr(0, 100)});
    CHECK_FALSE(mentions(all[i].out, "1/8"));
  }

  const std::string fixed = folder.file("fixed");
  fs::create_directory(fixed);
  if (::mount("tmpfs", fixed.c_str(), "tmpfs", MS_RDONLY, "size=1m") != 0) {
    WARN("no right to mount a read-only file system: not tested");
  } else {
    const Finished refused = run_command(training(kTwoTensorRanks, fixed + "/run"), 30);
    ::umount(fixed.c_str());
    require_refused(refused, 7, {fixed, "Read-only"});
  }

  // Strange, but allowed.
  const std::string strange = folder.file("dos spazios é 数 {} %n");
  train(kTwoTensorRanks, strange, {"train.steps=2", "checkpoint.every_steps=1"});
  CHECK(saved_steps(strange) == std::vector<std::int64_t>{1, 2});
  CHECK(fs::exists(strange + "/loss.svg"));
}

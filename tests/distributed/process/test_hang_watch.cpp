#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <chrono>
#include <csignal>
#include <filesystem>
#include <mutex>
#include <string>
#include <thread>

#include "distributed/comm/thread_communicator.h"
#include "distributed/process/hang_watch.h"
#include "support/catch.h"
#include "support/temporary_folder.h"

using namespace megatron;

namespace {

void pause_milliseconds(int milliseconds) {
  std::this_thread::sleep_for(std::chrono::milliseconds(milliseconds));
}

/// Waits until something holds; false only where it does not within minutes.
template <class Condition>
bool holds(const Condition& condition) {
  for (int i = 0; i < 30'000; ++i) {
    if (condition()) return true;
    pause_milliseconds(10);
  }
  return false;
}

/// A process that works until it is stopped.
class Worker {
 public:
  Worker() : process_(::fork()) {
    if (process_ != 0) return;
    ::alarm(600);
    for (std::atomic<std::uint64_t> count = 0;; ++count) {
    }
  }
  ~Worker() {
    ::kill(process_, SIGKILL);
    ::waitpid(process_, nullptr, 0);
  }
  Worker(const Worker&) = delete;
  Worker& operator=(const Worker&) = delete;
  pid_t process() const { return process_; }

 private:
  pid_t process_;
};

/// Collects what a watch says and does.
struct Witness {
  std::mutex mutex;
  std::string said;
  std::atomic<bool> aborted{false};

  HangWatch::Settings settings(double limit) {
    return {.limit_seconds = limit,
            .host = "node07",
            .print =
                [this](const std::string& text) {
                  const std::lock_guard lock(mutex);
                  said += text;
                },
            .abort = [this] { aborted = true; }};
  }
  std::string text() {
    const std::lock_guard lock(mutex);
    return said;
  }
  bool wait_for(const std::string& words) {
    return holds([&] { return text().find(words) != std::string::npos; });
  }
};

}  // namespace

TEST_CASE("hang watch: a rank that stands still, with all of its host; an abort", "[fault-31]") {
  std::array<Activity, 3> ranks;
  Witness witness;
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    ranks[i].set_owner(static_cast<int>(i) + 4, ::getpid());
    ranks[i].set_step(41);
    ranks[i].set_phase("backward");
    if (i != 1) ranks[i].begin_waiting({Verb::all_reduce, -1, 512}, "tensor");
  }
  const HangWatch watch(ranks[0], {&ranks[0], &ranks[1], &ranks[2]}, 4, witness.settings(0.2));
  REQUIRE(witness.wait_for("aborted with exit code 6"));
  for (const char* words : {"rank 4 on node07", "rank 5 on node07", "rank 6 on node07", "step 41, backward",
                            "waits in all-reduce 'tensor' of 512 bytes", "not waiting for other ranks",
                            "waiting for rank 5\n", "run.hang_minutes"}) {
    CAPTURE(words, witness.text());
    CHECK(witness.text().find(words) != std::string::npos);
  }
  CHECK(holds([&] { return witness.aborted.load(); }));
}

TEST_CASE("hang watch: a job that continues after all is not aborted", "[fault-31]") {
  Activity rank;
  rank.begin_waiting({Verb::barrier, -1, 0}, "world");
  Witness witness;
  const HangWatch watch(rank, {&rank}, 0, witness.settings(0.2));
  REQUIRE(witness.wait_for("rank 0 on node07"));
  rank.set_step(2);
  REQUIRE(witness.wait_for("continues after all"));
  CHECK_FALSE(witness.aborted);
}

TEST_CASE("ranks that move, and those that have left, are left alone", "[fault-31]") {
  std::array<Activity, 2> ranks;
  Witness witness;
  {
    const HangWatch watch(ranks[0], {&ranks[0], &ranks[1]}, 0, witness.settings(3));
    for (int i = 0; i < 800; ++i) {  // for longer than the limit
      ranks[0].set_step(i);
      pause_milliseconds(5);
    }
    CHECK(ranks[0].rank() == 0);
  }
  CHECK(ranks[0].rank() == -1);
  CHECK(witness.text().empty());
  CHECK_FALSE(witness.aborted);
}

TEST_CASE("time in which the whole process was suspended does not count", "[fault-31]") {
  const pid_t child = ::fork();
  if (child == 0) {
    ::alarm(600);
    Activity rank;
    Witness witness;
    {
      const HangWatch watch(rank, {&rank}, 0, witness.settings(3));
      pause_milliseconds(100);
      std::raise(SIGSTOP);
      pause_milliseconds(300);  // in which the watch looks, with nothing having moved since before the stop
    }
    ::_exit(witness.text().empty() && !witness.aborted ? 0 : 1);
  }
  int status = 0;
  REQUIRE(::waitpid(child, &status, WUNTRACED) == child);
  REQUIRE(WIFSTOPPED(status));
  pause_milliseconds(4000);  // longer than the limit
  ::kill(child, SIGCONT);
  REQUIRE(::waitpid(child, &status, 0) == child);
  CHECK(WIFEXITED(status));
  CHECK(WEXITSTATUS(status) == 0);
}

TEST_CASE("hang watch: ranks are not aborted while the one they wait for works", "[fault-31]") {
  const Worker worker;
  std::array<Activity, 2> ranks;
  ranks[1].set_owner(1, worker.process());
  ranks[1].set_phase("saving");
  ranks[0].begin_waiting({Verb::broadcast, 1, 8}, "world");
  Witness witness;
  const HangWatch watch(ranks[0], {&ranks[0], &ranks[1]}, 0, witness.settings(1));
  pause_milliseconds(4000);
  CHECK(witness.text().empty());
  ::kill(worker.process(), SIGSTOP);
  CHECK(witness.wait_for("(stopped), for"));
  CHECK(witness.wait_for("aborted with exit code 6"));
}

TEST_CASE("hang watch: passes of a device are no work of the host's thread", "[fault-31]") {
  const Worker worker;
  std::array<Activity, 2> ranks;
  ranks[1].set_owner(1, worker.process());
  ranks[1].set_phase("backward");
  ranks[0].begin_waiting({Verb::all_reduce, -1, 8}, "data");
  Witness witness;
  HangWatch watch(ranks[0], {&ranks[0], &ranks[1]}, 0, witness.settings(1));
  watch.know({.data = 2}, false, "");
  pause_milliseconds(3000);
  CHECK(witness.text().empty());
  watch.know({.data = 2}, true, "");
  CHECK(witness.wait_for("waiting for rank 1\n"));
}

TEST_CASE("hang watch: peers have their rank of the job and their host", "[fault-31]") {
  Activity rank;
  rank.begin_waiting({Verb::receive, 1, 8}, "pipeline");
  Witness witness;
  HangWatch::Settings settings = witness.settings(0.2);
  settings.hosts = {"node07", "node07", "node08", "node08"};
  HangWatch watch(rank, {&rank}, 1, settings);
  watch.know({.tensor = 2, .pipeline = 2}, false, "");
  CHECK(witness.wait_for("from its rank 1, which is rank 3 of the job on node08\n"));
}

TEST_CASE("hang watch: hosts hear from one another who works and who is silent", "[fault-31]") {
  const TemporaryFolder folder;
  const auto settings_of = [&](Witness& witness, const std::string& host) {
    HangWatch::Settings settings = witness.settings(1);
    settings.least_grace = 4;
    settings.host = host;
    settings.hosts = {"node07", "node08", "node09"};
    settings.folder = folder.path();
    settings.job = "job";
    return settings;
  };
  const Worker worker;
  Activity waiting, working;
  waiting.begin_waiting({Verb::barrier, -1, 0}, "world");
  working.set_phase("saving");
  Witness first, second;
  const HangWatch one(waiting, {&waiting}, 0, settings_of(first, "node07"));
  const HangWatch other(working, {&working}, 1, settings_of(second, "node08"));
  working.set_owner(1, worker.process());
  CHECK(first.wait_for("hang: it continues: a rank on node08 is at work\n"));
  CHECK_FALSE(first.aborted);
  ::kill(worker.process(), SIGSTOP);
  CHECK(first.wait_for("hang: no word from node09 (rank 2)\nhang: the job is aborted with exit code 6\n"));
  CHECK(second.wait_for("hang: rank 1 on node08"));
  CHECK(holds([&] { return second.aborted.load(); }));
  CHECK(second.text().find("no word") == std::string::npos);  // one host says it
}

TEST_CASE("hang watch: words follow the run's folder, and end with the watch", "[fault-31]") {
  const TemporaryFolder old, fresh;
  const Worker worker;
  Activity rank;
  rank.set_phase("saving");
  Witness witness;
  HangWatch::Settings settings = witness.settings(1);
  settings.hosts = {"node07", "node08"};
  settings.folder = old.path();
  settings.job = "job";
  const auto has_word = [](const TemporaryFolder& folder) {
    return std::filesystem::exists(folder.file(".hang_node07"));
  };
  {
    HangWatch watch(rank, {&rank}, 0, settings);
    rank.set_owner(0, worker.process());
    CHECK(holds([&] { return has_word(old); }));
    watch.know({.data = 2}, false, fresh.path());
    CHECK(holds([&] { return !has_word(old) && has_word(fresh); }));
  }
  CHECK(old.files().empty());
  CHECK(fresh.files().empty());
}

TEST_CASE("hang words: other jobs are not heard; who owns the folder clears it") {
  const TemporaryFolder folder;
  const std::string path = folder.path();
  HangWords old(path, "old", "node1"), one(path, "new", "node1"), two(path, "new", "node2");
  using Word = HangWords::Word;
  CHECK(old.say(Word::waits));
  CHECK(two.heard_from("node1") == Word::none);
  CHECK(one.say(Word::works));
  CHECK(two.heard_from("node1") == Word::waits);  // not before it is said again
  CHECK(one.say(Word::works));
  CHECK(two.heard_from("node1") == Word::works);
  CHECK(two.heard_from("node1") == Word::waits);
  one.fall_silent();
  CHECK(two.heard_from("node1") == Word::none);
  CHECK(one.say(Word::waits));
  HangWords::clear(path);
  CHECK(std::filesystem::is_empty(folder.path()));
  CHECK_FALSE(HangWords(path + "/absent", "new", "node1").say(Word::waits));
}

TEST_CASE("communicators tell what they wait in, groups split off included", "[fault-31]") {
  Activity receiver;
  const auto seen = [&](const std::string& words) {
    return holds([&] { return describe(receiver).find(words) != std::string::npos; });
  };
  run_as_threads(2, [&](Communicator& world) {
    if (world.rank() == 1) world.set_activity(&receiver);
    const auto group = world.split(0, world.rank(), "pipeline");
    float value = 1;
    const Tensor tensor(&value, {1}, DType::f32);
    if (world.rank() == 1) {
      group->start_receive(tensor, 0, 3, kPassedOn).wait();
      world.all_reduce_value(1, kPassedOn);
      world.barrier();
    } else {
      CHECK(seen("waits in receive 'pipeline' of 4 bytes from its rank 0"));
      group->start_send(tensor, 1, 3, kPassedOn).wait();
      CHECK(seen("waits in all-reduce 'world' of 8 bytes"));
      world.all_reduce_value(1, kPassedOn);
      CHECK(seen("waits in barrier 'world'"));
      world.barrier();
    }
  });
  CHECK(describe(receiver).find("not waiting") != std::string::npos);
}

TEST_CASE("hang watch: a patient rank does not hang while it is patient", "[fault-31]") {
  Activity rank;
  rank.begin_waiting({Verb::broadcast, 1, 8}, "world");
  rank.set_patient(true);
  Witness witness;
  const HangWatch watch(rank, {&rank}, 0, witness.settings(0.2));
  pause_milliseconds(800);
  CHECK(witness.text().empty());
  rank.set_patient(false);
  CHECK(witness.wait_for("rank 0 on node07"));
}

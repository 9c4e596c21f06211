#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <catch2/catch.hpp>
#include <chrono>
#include <csignal>
#include <mutex>
#include <string>
#include <thread>

#include "comm/thread_communicator.h"
#include "job/hang_watch.h"

using namespace megatron;

namespace {

void pause_milliseconds(int milliseconds) {
  std::this_thread::sleep_for(std::chrono::milliseconds(milliseconds));
}

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
    for (int i = 0; i < 1000 && text().find(words) == std::string::npos; ++i) pause_milliseconds(10);
    return text().find(words) != std::string::npos;
  }
};

}  // namespace

TEST_CASE("a rank that stands still is told together with all others of its node, and the job aborted", "[fault-31]") {
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
  for (int i = 0; i < 500 && !witness.aborted; ++i) pause_milliseconds(10);
  CHECK(witness.aborted);
}

TEST_CASE("hang watch: a job that continues after all is not aborted", "[fault-31]") {
  Activity rank;
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
    const HangWatch watch(ranks[0], {&ranks[0], &ranks[1]}, 0, witness.settings(1));
    for (int i = 0; i < 30; ++i) {
      ranks[0].set_step(i);
      pause_milliseconds(50);
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
    ::alarm(30);
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
  pause_milliseconds(1500);
  ::kill(child, SIGCONT);
  REQUIRE(::waitpid(child, &status, 0) == child);
  CHECK(WIFEXITED(status));
  CHECK(WEXITSTATUS(status) == 0);
}

TEST_CASE("communicators tell what they wait in, groups split off included", "[fault-31]") {
  Activity receiver;
  const auto seen = [&](const std::string& words) {
    for (int i = 0; i < 1000; ++i) {
      if (describe(receiver).find(words) != std::string::npos) return true;
      pause_milliseconds(5);
    }
    return false;
  };
  run_as_threads(2, [&](Communicator& world) {
    if (world.rank() == 1) world.set_activity(&receiver);
    const auto group = world.split(0, world.rank(), "pipeline");
    float value = 1;
    const Tensor tensor(&value, {1}, DType::f32);
    if (world.rank() == 1) {
      group->start_receive(tensor, 0, 3).wait();
      world.all_reduce_value(1);
      world.barrier();
    } else {
      CHECK(seen("waits in receive 'pipeline' of 4 bytes from its rank 0"));
      group->start_send(tensor, 1, 3).wait();
      CHECK(seen("waits in all-reduce 'world' of 8 bytes"));
      world.all_reduce_value(1);
      CHECK(seen("waits in barrier 'world'"));
      world.barrier();
    }
  });
  CHECK(describe(receiver).find("not waiting") != std::string::npos);
}

TEST_CASE("a rank that is patient is not taken for one that hangs, until it is not any more", "[fault-31]") {
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

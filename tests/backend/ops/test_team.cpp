// The team of threads that verbs run on: its parts, its errors, and that no other threads do the work.
#include <omp.h>

#include <algorithm>
#include <atomic>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <thread>

#include "backend/cpu/thread_team.h"
#include "backend/ops/backends.h"
#include "backend/ops/device.h"
#include "backend/ops/every_verb.h"
#include "base/core/error.h"
#include "support/catch.h"

using namespace megatron;
using namespace megatron::test;

namespace {

std::vector<std::string> tasks_of_process() {
  std::vector<std::string> tasks;
  for (const auto& task : std::filesystem::directory_iterator("/proc/self/task")) tasks.push_back(task.path());
  return tasks;
}

/// Tasks that were not there before; some of the others may have ended meanwhile, as earlier tests' do.
std::vector<std::string> tasks_since(const std::vector<std::string>& before) {
  std::vector<std::string> tasks = tasks_of_process();
  std::erase_if(tasks, [&](const auto& task) { return std::count(before.begin(), before.end(), task) != 0; });
  return tasks;
}

/// The signals that a thread blocks, as the kernel tells.
std::uint64_t blocked_signals(const std::string& task) {
  std::ifstream file(task + "/status");
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with("SigBlk:")) return std::stoull(line.substr(7), nullptr, 16);
  }
  return 0;
}

}  // namespace

TEST_CASE("a team does every part once and cuts ranges that fit", "[threads]") {
  for (const int threads : {1, 2, 3}) {
    const ThreadTeam team(threads);
    for (const std::int64_t parts : {0, 1, 2, 7, 1000}) {
      std::vector<std::atomic<int>> done(static_cast<std::size_t>(parts));
      team.each(parts, [&](std::int64_t part, int thread) {
        if (thread >= 0 && thread < threads) ++done[static_cast<std::size_t>(part)];
      });
      CHECK(std::all_of(done.begin(), done.end(), [](const auto& times) { return times == 1; }));
    }
    for (const std::int64_t count : {0, 1, 63, 64, 65, 1000, 1 << 16}) {
      for (const std::int64_t work : {1, 1 << 20}) {
        std::vector<std::atomic<int>> done(static_cast<std::size_t>(count));
        std::atomic<int> calls{0};
        team.ranges(count, 64, work, [&](std::int64_t first, std::int64_t last) {
          ++calls;
          if (first % 64 == 0 && (last % 64 == 0 || last == count)) {
            for (std::int64_t i = first; i < last; ++i) ++done[static_cast<std::size_t>(i)];
          }
        });
        CHECK(std::all_of(done.begin(), done.end(), [](const auto& times) { return times == 1; }));
        CHECK(calls <= (work == 1 ? 1 : threads));
      }
    }
  }
}

TEST_CASE("an error on any thread of a team reaches the caller", "[threads]") {
  const ThreadTeam team(3);
  for (std::int64_t bad = 0; bad < 20; ++bad) {
    std::atomic<int> done{0};
    const auto work = [&] {
      team.each(20, [&](std::int64_t part, int) {
        if (part == bad) fail(ErrorKind::numerics, "part {}", part);
        ++done;
      });
    };
    CHECK_THROWS_WITH(work(), Contains(fmt::format("part {}", bad)));
    CHECK(done == 19);
  }
}

TEST_CASE("team: workers start once and block all signals but those of crashes", "[threads]") {
  std::thread([] {  // a separate rank, so that no other test's workers are counted
    const std::vector<std::string> before = tasks_of_process();
    const auto new_tasks = [&] { return tasks_since(before); };
    const Backend one = make_cpu_backend(1);
    row_verbs(*one.ops, 33, 7, 129);
    CHECK(new_tasks().empty());
    const Backend several = make_cpu_backend(3);
    const std::vector<std::string> workers = new_tasks();
    CHECK(workers.size() == 2);
    for (const std::string& worker : workers) {
      for (const int signal : {SIGTERM, SIGINT, SIGUSR1, SIGHUP}) {
        CHECK((blocked_signals(worker) >> (signal - 1) & 1) == 1);
      }
      for (const int crash : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT}) {  // have to be reported
        CHECK((blocked_signals(worker) >> (crash - 1) & 1) == 0);
      }
    }
    sigset_t mine;
    pthread_sigmask(SIG_BLOCK, nullptr, &mine);
    CHECK(sigismember(&mine, SIGTERM) == 0);
    for (int time = 0; time < 3; ++time) {
      row_verbs(*several.ops, 33, 7, 129);
      product(*several.ops, 300, 300, 300, false, true, false);
    }
    CHECK(new_tasks() == workers);
  })
      .join();
}

TEST_CASE("fewer threads than asked for are an error, not a slow run", "[threads]") {
  std::thread([] {
    omp_set_dynamic(1);  // as OMP_DYNAMIC=true; this thread's alone
    CHECK_THROWS_WITH(ThreadTeam(1000), Contains("run.threads = 1000") && Contains("OMP_DYNAMIC"));
  }).join();
}

TEST_CASE("matmul stays on the calling thread, in every rank that is a thread", "[matmul]") {
  constexpr std::int64_t n = 384;
  const Owned<float> x = random_tensor({n, n}, 5);
  std::vector<float> results[3];
  std::size_t started[3] = {};
  const auto multiply = [&](int rank) {
    const Backend backend = make_cpu_backend();
    results[rank].resize(n * n);
    const std::vector<std::string> before = tasks_of_process();
    for (int i = 0; i < 3; ++i) {
      backend.ops->matmul({x, x, false, true, Tensor(results[rank].data(), {n, n}, DType::f32), false});
    }
    started[rank] = tasks_since(before).size();
  };
  multiply(0);
  CHECK(started[0] == 0);
  std::thread first(multiply, 1);
  first.join();
  CHECK(started[1] == 0);
  std::thread second(multiply, 1), third(multiply, 2);
  second.join();
  third.join();
  CHECK(std::memcmp(results[0].data(), results[1].data(), sizeof(float) * n * n) == 0);
  CHECK(std::memcmp(results[0].data(), results[2].data(), sizeof(float) * n * n) == 0);
}

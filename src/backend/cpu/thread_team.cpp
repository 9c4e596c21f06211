#include "backend/cpu/thread_team.h"

#include <omp.h>

#include <atomic>
#include <csignal>
#include <exception>

#include "base/core/error.h"

namespace megatron {

ThreadTeam::ThreadTeam(int threads) : threads_(threads) {
  internal_check(threads >= 1, "a team has at least one thread", threads);
  if (threads == 1) return;
  // The workers are made by the first parallel region and inherit its signal mask; all later regions are of the same
  // size, so that OpenMP keeps them.
  sigset_t all, before;
  sigfillset(&all);
  for (const int crash : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT})
    sigdelset(&all, crash);  // base/system/crash_report.h
  pthread_sigmask(SIG_SETMASK, &all, &before);
  std::atomic<int> present{0};
#pragma omp parallel num_threads(threads)
  ++present;
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  verify(present == threads, ErrorKind::configuration,
         "run.threads = {}: OpenMP starts only {}; unset OMP_THREAD_LIMIT and OMP_DYNAMIC, or ask for fewer", threads,
         present.load());
}

void ThreadTeam::run_together(std::int64_t parts, Order order, Call call, const void* body) const {
  std::atomic<std::int64_t> next{0};
  std::atomic<bool> failed{false};
  std::exception_ptr failure;
#pragma omp parallel num_threads(threads_)
  {
    // A team that OpenMP made smaller than asked for still does all parts.
    const int thread = omp_get_thread_num(), present = omp_get_num_threads();
    const auto take = [&](std::int64_t before) {
      return order == Order::as_free ? next.fetch_add(1, std::memory_order_relaxed) : before + present;
    };
    for (std::int64_t part = take(thread - present); part < parts; part = take(part)) {
      try {
        call(body, part, thread);
      } catch (...) {
        if (!failed.exchange(true)) failure = std::current_exception();
      }
    }
  }
  if (failure) std::rethrow_exception(failure);
}

}  // namespace megatron

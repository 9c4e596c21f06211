// ThreadTeam: the threads that share one rank's mathematics (run.threads), by OpenMP. Knows nothing of tensors.
//
// How work is cut up depends on its size and on the number of threads, never on which thread is free; each element of a
// result is computed by one thread in an order that depends on neither. So verbs that use a team give the same bits
// with any number of threads (all but matmul, see matmul.cpp).
#pragma once

#include <algorithm>
#include <cstdint>

namespace megatron {

/// With one thread every call is a plain loop on the calling thread, and OpenMP is never entered. With more, the caller
/// works together with threads - 1 workers, which are started once and wait between calls. Work too small to be worth
/// waking them stays on the caller.
///
/// Belongs to the thread that made it: every rank that is a thread has its own workers. Workers block all signals but
/// those of crashes, which are reported whichever thread dies (base/system/crash_report.h): matrix kernels may run with
/// their stack pointer in heap memory, where no handler that returns may run, and the stack for handlers
/// (distributed/process/stop_signals.h) is the caller's alone.
class ThreadTeam {
 public:
  /// Starts the workers. Throws Error(configuration) if OpenMP's environment allows fewer threads. Where the system
  /// refuses one (limits on processes or memory), OpenMP itself says so and ends the process.
  explicit ThreadTeam(int threads);

  int threads() const { return threads_; }

  /// Calls body(part, thread) for every part of [0, parts), in any order and at the same time; a free thread takes
  /// the next. `thread` is in [0, threads()). The first exception of a body is rethrown when all are done.
  template <class Body>
  void each(std::int64_t parts, const Body& body) const {
    run(parts, Order::as_free, body);
  }

  /// Calls body(first, last) for ranges that together are [0, count), at most one for each thread, cut at multiples of
  /// `unit`. One call for all of it where `work`, the number of elements to be touched, is small.
  template <class Body>
  void ranges(std::int64_t count, std::int64_t unit, std::int64_t work, const Body& body) const {
    if (!worth(work)) {
      if (count > 0) body(std::int64_t{0}, count);
      return;
    }
    run(threads_, Order::fixed, [&](std::int64_t part, int) {
      const std::int64_t first = cut(count, unit, threads_, part), last = cut(count, unit, threads_, part + 1);
      if (first < last) body(first, last);
    });
  }
  /// Ranges of the rows of a matrix.
  template <class Body>
  void rows(std::int64_t rows, std::int64_t columns, const Body& body) const {
    ranges(rows, 1, rows * columns, body);
  }
  /// Ranges of the columns of a matrix, for sums over its rows: each column's is added up by one thread, in order.
  template <class Body>
  void columns(std::int64_t rows, std::int64_t columns, const Body& body) const {
    ranges(columns, kUnit, rows * columns, body);
  }
  /// Ranges of n elements.
  template <class Body>
  void elements(std::int64_t n, const Body& body) const {
    ranges(n, kUnit, n, body);
  }

  /// Whether `work` elements are enough to wake the workers for.
  bool worth(std::int64_t work) const { return threads_ > 1 && work >= kSmall; }

  /// Where part `part` of `parts` of [0, count) begins: equal parts, rounded to multiples of `unit`.
  static std::int64_t cut(std::int64_t count, std::int64_t unit, std::int64_t parts, std::int64_t part) {
    const std::int64_t units = (count + unit - 1) / unit;
    return std::min(count, units * part / parts * unit);
  }

 private:
  /// Fixed: a thread meets the same range in every call, so that its cache still holds it.
  enum class Order { as_free, fixed };
  /// Elements: a multiple of all vector lengths, so that an element is reached by the same instructions however the
  /// range around it was cut, and of a cache line, so that threads do not write to the same one.
  static constexpr std::int64_t kUnit = 64;
  static constexpr std::int64_t kSmall = std::int64_t{1} << 14;  // waking and waiting cost a few microseconds

  using Call = void (*)(const void* body, std::int64_t part, int thread);
  void run_together(std::int64_t parts, Order order, Call call, const void* body) const;

  template <class Body>
  void run(std::int64_t parts, Order order, const Body& body) const {
    if (threads_ == 1 || parts <= 1) {
      for (std::int64_t part = 0; part < parts; ++part) body(part, 0);
      return;
    }
    const Call call = [](const void* erased, std::int64_t part, int thread) {
      (*static_cast<const Body*>(erased))(part, thread);
    };
    run_together(parts, order, call, &body);
  }

  int threads_;
};

}  // namespace megatron

// CheckCopies: what a check of collectives would hold besides a run's own memory, learnt from the calls of a step that
// is played on communicators which move nothing. For plans; the check itself: group_check.h.
#pragma once

#include <memory>
#include <vector>

#include "distributed/comm/process_grid.h"

namespace megatron {

class CheckCopies {
 public:
  /// Hears of the calls of the grid's groups, but for the world's. The grid must outlive it, and calls in flight not.
  explicit CheckCopies(const ProcessGrid& grid);
  ~CheckCopies();
  CheckCopies(const CheckCopies&) = delete;
  CheckCopies& operator=(const CheckCopies&) = delete;

  /// Bytes, the most at once so far: results that a check keeps from their callers, where the tensors are.
  std::size_t most_kept() const { return counts_.most_kept; }
  /// Bytes of the largest tensor so far, which a check copies to the host if it is a device's.
  std::size_t most_read() const { return counts_.most_read; }

 private:
  class OfGroup;
  struct Counts {
    std::size_t kept = 0, most_kept = 0, most_read = 0;
  };

  Counts counts_;
  std::vector<std::unique_ptr<OfGroup>> groups_;
};

}  // namespace megatron

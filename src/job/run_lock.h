// RunLock: one job at a time in a run directory. Held by rank 0 from start to end.
//
// An advisory lock of the operating system on `directory`/lock, which names its holder: it vanishes with the process,
// however that ends, so that there are no stale locks to remove: a file that a dead job has left locks nothing. Where
// the file system has no locks there is a warning and no protection.
#pragma once

#include <string>

#include "base/log.h"

namespace megatron {

class RunLock {
 public:
  /// Throws Error(filesystem) that names host and process if another job holds it.
  RunLock(const std::string& directory, Log& log);
  ~RunLock();
  RunLock(const RunLock&) = delete;
  RunLock& operator=(const RunLock&) = delete;

 private:
  int file_ = -1;
};

}  // namespace megatron

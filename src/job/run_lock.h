// RunLock: one job at a time in a run directory. Held by rank 0 from start to end.
//
// A FileLock on `directory`/lock, which stays there. Where the file system has no locks there is a warning and no
// protection.
#pragma once

#include <string>

#include "base/file_lock.h"
#include "base/log.h"

namespace megatron {

class RunLock {
 public:
  /// Throws Error(filesystem) that names host and process if another job holds it.
  RunLock(const std::string& directory, Log& log);

 private:
  FileLock lock_;
};

}  // namespace megatron

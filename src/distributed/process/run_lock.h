// RunLock: one job at a time in a run directory. Held by rank 0 from start to end.
//
// FileLocks on two files of the directory, `lock` and `.lock`, which stay there: two, because people remove the one
// that they see. Where the file system has no locks there is a warning and no protection.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/system/file_lock.h"
#include "base/system/log.h"

namespace megatron {

class RunLock {
 public:
  /// Throws Error(filesystem) that names host and process if another job holds it. The log must outlive it.
  RunLock(const std::string& directory, Log& log);

  /// Before what another job must not find half done. Locks again what has been removed; throws Error(filesystem) if
  /// another job has taken the directory since.
  void hold();

 private:
  struct File {
    std::string path;
    std::unique_ptr<FileLock> lock;
  };

  void require_absent() const;

  std::string directory_;
  Log& log_;
  std::vector<File> files_;
};

}  // namespace megatron

#include "job/run_lock.h"

#include "base/error.h"

namespace megatron {

RunLock::RunLock(const std::string& directory, Log& log) : lock_(directory + "/lock") {
  verify(lock_.outcome() != FileLock::Outcome::in_use, ErrorKind::filesystem,
         "{} is in use by {}; wait for it to end, or name another run.directory", directory, lock_.reason());
  if (lock_.outcome() == FileLock::Outcome::held) return;
  log.warning("{}/lock cannot be locked ({}): nothing keeps a second job out of this directory", directory,
              lock_.reason());
}

}  // namespace megatron

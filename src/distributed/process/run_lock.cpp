#include "distributed/process/run_lock.h"

#include <algorithm>
#include <filesystem>
#include <system_error>

#include "base/core/error.h"

namespace megatron {

namespace {

bool in_place(const FileLock& lock) try { return lock.has_its_name(); } catch (const Error&) {
  return true;  // a file system that does not answer has not lost it
}

}  // namespace

RunLock::RunLock(const std::string& directory, Log& log) : directory_(directory), log_(log) {
  for (const char* name : {".lock", "lock"}) {
    File file{directory + "/" + name, nullptr};
    file.lock = std::make_unique<FileLock>(file.path);
    verify(file.lock->outcome() != FileLock::Outcome::in_use, ErrorKind::filesystem,
           "{} is in use by {}; wait for it to end, or name another run.directory", directory, file.lock->reason());
    files_.push_back(std::move(file));
    if (files_.back().lock->outcome() == FileLock::Outcome::held) continue;
    log.warning("{} cannot be locked ({}): nothing keeps a second job out of this directory", files_.back().path,
                files_.back().lock->reason());
    return;
  }
}

// A lock file that is not ours is that of a job which has come since, even if it has ended: its checkpoints are there.
void RunLock::require_absent() const {
  for (const File& file : files_) {
    std::error_code unknown;
    if (!std::filesystem::exists(std::filesystem::symlink_status(file.path, unknown))) continue;
    const FileLock other(file.path);
    fail(ErrorKind::filesystem,
         "the lock of {} was removed while this job trained there, and {} has taken the directory: this job ends and "
         "writes nothing more into it",
         directory_,
         other.outcome() == FileLock::Outcome::in_use ? other.reason() : "another job, which has ended since,");
  }
}

void RunLock::hold() {
  // With one of them in place no other job gets in: one that has taken the other is about to be refused.
  const bool held = std::any_of(files_.begin(), files_.end(), [](const File& file) { return in_place(*file.lock); });
  if (!held) require_absent();
  if (std::all_of(files_.begin(), files_.end(), [](const File& file) {
        return !in_place(*file.lock) && file.lock->was_moved();  // a file system that does not answer moves nothing
      })) {
    log_.warning(
        "{} was moved away while this job trains there: metrics, checkpoints and lines from here on are in a new "
        "folder "
        "of that name; its earlier contents are where it was moved to",
        directory_);
  }
  for (File& file : files_) {
    if (in_place(*file.lock)) continue;
    std::error_code trouble;                                   // shows below
    std::filesystem::create_directories(directory_, trouble);  // all of it may be gone: saving makes it again
    std::unique_ptr<FileLock> again;
    try {
      again = std::make_unique<FileLock>(file.path);
    } catch (const Error& error) {
      log_.warning("the lock of {} is gone and cannot be taken again: {}", directory_, error.what());
      continue;
    }
    if (again->outcome() != FileLock::Outcome::in_use) {
      file.lock = std::move(again);
      file.lock->lock_again();
      continue;
    }
    verify(held, ErrorKind::filesystem,
           "the lock of {} was removed while this job trained there, and {} has taken the directory: this job ends and "
           "writes nothing more into it",
           directory_, again->reason());
  }
}

}  // namespace megatron

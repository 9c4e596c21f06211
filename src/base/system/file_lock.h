// FileLock: an advisory lock of the operating system on a file, which names its holder; TargetLock: one command at a
// time on what it writes. They vanish with the process, however that ends, so that there are no stale locks to remove:
// a file that a dead process has left locks nothing.
#pragma once

#include <memory>
#include <string>
#include <vector>

namespace megatron {

class FileLock {
 public:
  enum class Outcome { held, in_use, unsupported };

  /// Creates the file if need be, and does not wait. Error(filesystem) if the file cannot be opened or is no file.
  explicit FileLock(const std::string& path);
  ~FileLock();
  FileLock(const FileLock&) = delete;
  FileLock& operator=(const FileLock&) = delete;

  Outcome outcome() const { return outcome_; }
  /// in_use: "process 12 on node3"; unsupported: why the file system has no locks.
  const std::string& reason() const { return reason_; }
  /// Whether the file still has the name it was opened by. Error(filesystem) if that cannot be seen.
  bool has_its_name() const;
  /// Whether the file has another name than that by now: it was moved, perhaps with its folder.
  bool was_moved() const;
  /// After another FileLock of this process on the same file has gone, which took the lock with it.
  void lock_again();

 private:
  std::string path_, reason_;
  int file_ = -1;
  Outcome outcome_ = Outcome::held;
};

/// A folder with its parents, made where they are not there; those that are empty again go away with this.
class MadeFolders {
 public:
  /// Error(filesystem) where that cannot be.
  explicit MadeFolders(const std::string& folder);
  ~MadeFolders();
  MadeFolders(const MadeFolders&) = delete;
  MadeFolders& operator=(const MadeFolders&) = delete;

 private:
  std::vector<std::string> made_;  // the innermost first
};

/// Lock of a file, a folder or a prefix of files: FOLDER/.NAME.lock, which is removed with this object, in a folder
/// that is made if need be. Where the file system has no locks, there is a warning on standard error and no protection.
class TargetLock {
 public:
  /// Error(filesystem) that names host and process if another command writes there, or a folder that cannot be made.
  explicit TargetLock(const std::string& target);
  ~TargetLock();
  TargetLock(const TargetLock&) = delete;
  TargetLock& operator=(const TargetLock&) = delete;

 private:
  std::string path_;
  MadeFolders folders_;
  std::unique_ptr<FileLock> lock_;
};

}  // namespace megatron

// Files that survive a crash: contents to disk, then the new name, then the folder's entry to disk.
//
// All errors are ErrorKind::filesystem and name the path. Nothing here knows what the files hold.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace megatron {

/// Flushes a closed file, or a folder's entries, to the disk.
void sync_path(const std::string& path);
/// Has the disk begin with a file while more of it is being written, so that little is left for sync_path() to wait
/// for. A hint: what goes wrong here shows there.
class EarlyFlush {
 public:
  explicit EarlyFlush(const std::string& path);  ///< of a file that is there
  EarlyFlush(const EarlyFlush&) = delete;
  EarlyFlush& operator=(const EarlyFlush&) = delete;
  ~EarlyFlush();
  void written(std::size_t bytes);  ///< so many more have been

 private:
  int file_;
  std::size_t waiting_ = 0;
};

/// Creates or overwrites a file with these contents and flushes it.
void write_durably(const std::string& path, std::string_view contents);
/// rename(2), then flushes the folder that holds `to`. `from` must have been synced before.
void rename_durably(const std::string& from, const std::string& to);
/// The folder part of a path: "." if there is none.
std::string folder_of(const std::string& path);
/// Removes a file if it is there; never throws (for cleaning up after another error).
void remove_quietly(const std::string& path) noexcept;

}  // namespace megatron

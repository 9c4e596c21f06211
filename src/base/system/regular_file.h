// RegularFile: a file that is read at any place, and only if it is a regular one. Opening never waits: a FIFO, a device
// or a socket in the place of a file is refused at once, where open(2) would hang until a writer comes.
//
// Owns its descriptor. Threads may share it. Knows nothing of what files hold, but for pointers of Git LFS.
#pragma once

#include <cstdint>
#include <string>

#include "base/core/error.h"

namespace megatron {

class RegularFile {
 public:
  /// Follows symbolic links. A file that is missing, none, shorter than it was or a pointer of Git LFS is an error of
  /// this kind; one that the system cannot open or read is ErrorKind::filesystem.
  RegularFile(std::string path, ErrorKind kind);
  RegularFile(const RegularFile&) = delete;
  RegularFile& operator=(const RegularFile&) = delete;
  ~RegularFile();

  const std::string& path() const { return path_; }
  ErrorKind kind() const { return kind_; }
  std::uint64_t bytes() const { return bytes_; }  ///< when it was opened

  /// Reads exactly these bytes of the file; fewer are an error that names the place.
  void read(std::uint64_t first, void* to, std::uint64_t bytes) const;

 private:
  std::string path_;
  ErrorKind kind_;
  int descriptor_ = -1;
  std::uint64_t bytes_ = 0;
};

/// Fails with this kind if the file that is open under `descriptor`, whose size is `bytes`, is a pointer of Git LFS in
/// the place of the file that was meant.
void refuse_lfs_pointer(int descriptor, std::uint64_t bytes, const std::string& path, ErrorKind kind);

/// Opens a file to write after its end, and creates it if need be. -1 and errno if that cannot be; ELOOP for a symbolic
/// link, whose file may be another's; ENXIO for a FIFO or a socket, even with a reader: one that stops reading would
/// stop the run.
int open_for_append(const std::string& path);
/// Whether an open file still has this name: it may have been removed, moved or replaced. True where that is not known.
bool has_name(int descriptor, const std::string& path);

}  // namespace megatron

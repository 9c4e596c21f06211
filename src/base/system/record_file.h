// RecordFile: a file that grows by whole records, such as lines, while a run is under way.
//
// Writing never ends the run: where a record cannot be written a warning is given once and records are lost, of which
// none is left torn. A file that was removed is begun anew; one whose folder was moved away is written on until there
// is such a folder again. Records are handed to the system at once, so that they survive the end of the process.
#pragma once

#include <string>
#include <string_view>

#include "base/system/log.h"

namespace megatron {

class RecordFile {
 public:
  /// Appends to `path`; opened at the first record. `lost`: the end of the warning, such as "its lines are lost".
  /// `log` must outlive it.
  RecordFile(std::string path, Log& log, std::string lost);
  ~RecordFile();
  RecordFile(const RecordFile&) = delete;
  RecordFile& operator=(const RecordFile&) = delete;

  /// A file that is new or empty gets `header` first. False, after the warning, if the record is lost.
  bool append(std::string_view record, std::string_view header = {});
  const std::string& path() const { return path_; }

 private:
  bool ensure_open();
  bool write_all(std::string_view text);
  bool warn_once(int error);

  std::string path_, lost_;
  Log& log_;
  int file_ = -1;
  bool warned_ = false;
};

}  // namespace megatron

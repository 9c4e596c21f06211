#include "data/hdf5/hdf5_check.h"

#include <hdf5.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "base/system/errno_text.h"

namespace megatron {

namespace {

/// Keeps the innermost entry of HDF5's error stack (number 0 when walking upward).
herr_t keep_innermost(unsigned number, const H5E_error2_t* entry, void* text) {
  if (number == 0 && entry->desc != nullptr) *static_cast<std::string*>(text) = entry->desc;
  return 0;
}

std::string innermost_reason() {
  std::string reason;
  H5Ewalk2(H5E_DEFAULT, H5E_WALK_UPWARD, keep_innermost, &reason);
  H5Eclear2(H5E_DEFAULT);
  return reason.empty() ? "the library gives no reason" : reason;
}

/// The file driver's messages are long; what the system said is in the middle of them, in quotes.
std::string shortened(std::string reason) {
  static constexpr std::string_view kSystemMessage = "error message = '";
  if (const std::size_t start = reason.find(kSystemMessage); start != std::string::npos) {
    reason.erase(0, start + kSystemMessage.size());
    reason.resize(std::min(reason.find('\''), reason.size()));
  }
  std::replace(reason.begin(), reason.end(), '\n', ' ');
  return reason;
}

/// The errno by which the system, rather than the contents of the file, is the cause; 0: it is not.
int system_error(const std::string& reason) {
  static constexpr std::pair<const char*, int> kSystemErrors[] = {
      {"No space left", ENOSPC},        {"Disk quota exceeded", EDQUOT}, {"Permission denied", EACCES},
      {"Read-only file system", EROFS}, {"Input/output error", EIO},     {"Too many open files", EMFILE},
      {"File too large", EFBIG},        {"Stale file handle", ESTALE},   {"Is a directory", EISDIR},
      {"unable to lock", ENOLCK}};
  for (const auto& [words, error] : kSystemErrors) {
    if (reason.find(words) != std::string::npos) return error;
  }
  return 0;
}

}  // namespace

void check_hdf5(std::int64_t value, ErrorKind kind, const std::string& where, const char* call) {
  if (value >= 0) [[likely]]
    return;
  const std::string reason = innermost_reason();
  const bool locking = reason.find("lock file") != std::string::npos;
  const std::string_view name = std::string_view(call).substr(0, std::string_view(call).find('('));
  const int error = system_error(reason);
  fail(error != 0 ? ErrorKind::filesystem : kind, "{}: {} failed: {}{}", where, name, shortened(reason),
       locking ? "; if no other program uses the file, its file system may lack locks: set HDF5_USE_FILE_LOCKING=FALSE"
               : advice_for(error));
}

}  // namespace megatron

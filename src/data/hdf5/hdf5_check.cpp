#include "data/hdf5/hdf5_check.h"

#include <hdf5.h>

#include <algorithm>
#include <array>

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

/// Whether the system, rather than the contents of the file, is the cause.
bool is_environment(const std::string& reason) {
  static constexpr std::array kSystemErrors{
      "No space left",       "Disk quota exceeded", "Permission denied", "Read-only file system", "Input/output error",
      "Too many open files", "File too large",      "Stale file handle", "Is a directory",        "unable to lock"};
  for (const char* error : kSystemErrors) {
    if (reason.find(error) != std::string::npos) return true;
  }
  return false;
}

}  // namespace

void check_hdf5(std::int64_t value, ErrorKind kind, const std::string& where, const char* call) {
  if (value >= 0) [[likely]]
    return;
  const std::string reason = innermost_reason();
  const bool locking = reason.find("lock file") != std::string::npos;
  const std::string_view name = std::string_view(call).substr(0, std::string_view(call).find('('));
  fail(is_environment(reason) ? ErrorKind::filesystem : kind, "{}: {} failed: {}{}", where, name, shortened(reason),
       locking ? "; if no other program uses the file, its file system may lack locks: set HDF5_USE_FILE_LOCKING=FALSE"
               : "");
}

}  // namespace megatron

#include "base/system/errno_text.h"

#include <cerrno>
#include <system_error>

#include "base/core/error.h"

namespace megatron {

/// For every place where files are written or read, so it names no option and no key.
const char* advice_for(int error) {
  switch (error) {
    case ENOSPC: return "; free some space there, or choose another place";
    case EDQUOT: return "; your quota is used up: remove files, or choose another place";
    case EFBIG: return "; files that large are not allowed here (ulimit -f, or the file system)";
    case EROFS: return "; choose a place that can be written to";
    case EACCES:
    case EPERM: return "; its owner must let you in (chmod, also of the folders above), or choose a place of your own";
    case EIO: return "; the disk or the way to it is failing: see the system's log (dmesg), and copy what you can away";
    case ENOTEMPTY:
    case EEXIST: return "; something is there that was not before: remove it, or choose another name";
    case ENAMETOOLONG: return "; choose a shorter name";
    case ELOOP: return "; give the path that the link leads to";
    case ENXIO: return "; a named pipe or a device has this name: remove it, or choose another name";
    default: return "";
  }
}

std::string errno_text(int error) {
  return std::generic_category().message(error) + advice_for(error);
}

void fail_with_errno(const std::string& action, const std::string& path) {
  const int error = errno;
  fail(ErrorKind::filesystem, "cannot {} {}: {}", action, path, errno_text(error));
}

}  // namespace megatron

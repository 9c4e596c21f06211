// Errors of the file system say what to do about them, wherever they happen.
#include "base/system/errno_text.h"

#include <cerrno>

#include "support/require_error.h"

using namespace megatron;
using namespace megatron::test;

TEST_CASE("errors of the file system say what to do about them", "[errno]") {
  for (const auto& [error, advice] : {std::pair(EACCES, "chmod"),
                                      {EPERM, "chmod"},
                                      {EIO, "dmesg"},
                                      {EROFS, "choose a place that can be written to"},
                                      {ENOSPC, "free some space"},
                                      {EDQUOT, "quota"},
                                      {EFBIG, "ulimit -f"},
                                      {ELOOP, "the path that the link leads to"},
                                      {ENOTEMPTY, "remove it"}}) {
    errno = error;
    require_error(ErrorKind::filesystem, {"cannot open /a/b: ", advice}, [] { fail_with_errno("open", "/a/b"); });
  }
}

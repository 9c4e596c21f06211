#include "inference/generation/text_output.h"

#include <unistd.h>

#include <cerrno>

#include "base/core/error.h"
#include "base/system/errno_text.h"

namespace megatron {

void print_text(std::string_view text) {
  while (!text.empty()) {
    const ssize_t written = ::write(STDOUT_FILENO, text.data(), text.size());
    if (written > 0) text.remove_prefix(static_cast<std::size_t>(written));
    if (written >= 0 || errno == EINTR) continue;
    fail(ErrorKind::filesystem, "standard output cannot be written; what was printed is not complete: {}",
         errno_text(errno));
  }
}

}  // namespace megatron

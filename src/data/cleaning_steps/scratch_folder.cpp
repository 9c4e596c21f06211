#include "data/cleaning_steps/scratch_folder.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <utility>

#include "base/core/error.h"
#include "base/system/errno_text.h"

namespace megatron {

ScratchFolder::ScratchFolder(std::string parent, const std::string& name)
    : parent_(std::move(parent)), path_(parent_ + "/" + name) {
  std::error_code error;
  std::filesystem::remove_all(path_, error);  // left by a killed command
  std::filesystem::create_directories(path_, error);
  verify(!error, ErrorKind::filesystem, "cannot create {}: {}", path_, errno_text(error.value()));
}

ScratchFolder::~ScratchFolder() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
  std::filesystem::remove(parent_, ignored);
}

void append_to_file(const std::string& path, std::string_view bytes) {
  const int file = ::open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
  if (file < 0) fail_with_errno("create", path);
  int reason = 0;
  while (reason == 0 && !bytes.empty()) {
    const ssize_t written = ::write(file, bytes.data(), bytes.size());
    if (written >= 0) bytes.remove_prefix(static_cast<std::size_t>(written));
    if (written < 0 && errno != EINTR) reason = errno;
  }
  if (::close(file) != 0 && reason == 0 && errno != EINTR) reason = errno;
  if (reason != 0) fail(ErrorKind::filesystem, "cannot write {}: {}", path, errno_text(reason));
}

}  // namespace megatron

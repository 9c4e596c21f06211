#include "base/system/log.h"

#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <ctime>

#include "base/system/errno_text.h"
#include "base/system/regular_file.h"
#include "base/text/text.h"

namespace megatron {

namespace {

// To the beginning of the line, and nothing from there on.
const std::string kEraseLine = "\r\x1b[K";

/// Writes as much as can be written; what cannot is lost, on purpose.
void write_all(int descriptor, std::string_view text) {
  while (!text.empty()) {
    const ssize_t written = ::write(descriptor, text.data(), text.size());
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return;
    text.remove_prefix(static_cast<std::size_t>(written));
  }
}

std::string time_stamp() {
  const std::time_t now = std::time(nullptr);
  std::tm parts{};
  ::localtime_r(&now, &parts);
  char buffer[32];
  const std::size_t length = std::strftime(buffer, sizeof buffer, "%Y-%m-%d %H:%M:%S  ", &parts);
  return std::string(buffer, length);
}

}  // namespace

Log::~Log() {
  if (file_ >= 0) ::close(file_);
}

void Log::append_to(const std::string& path) {
  if (!enabled_) return;
  int error = 0;
  {
    const std::lock_guard lock(mutex_);
    if (file_ >= 0) ::close(file_);
    path_ = path;
    file_ = open_for_append(path);
    if (file_ < 0) error = errno;
  }
  if (error != 0) warning("cannot write {}: {}; continuing without this file", path, errno_text(error));
}

void Log::write_to_file(std::string_view text) {
  if (file_ < 0) return;
  if (!has_name(file_, path_)) {  // it was removed or moved: begin a new one
    const int reopened = open_for_append(path_);
    if (reopened >= 0) {
      ::close(file_);
      file_ = reopened;
    }
  }
  const std::string stamp = time_stamp();
  std::string stamped;
  while (!text.empty()) {
    const std::size_t length = text.find('\n') + 1;
    stamped += stamp;
    stamped += text.substr(0, length);
    text.remove_prefix(length);
  }
  write_all(file_, stamped);
}

// A reader that has stopped reading must not stop the run, which other ranks wait for.
void Log::write_to_stream(int descriptor, std::string_view text) {
  while (!text.empty()) {
    pollfd stream{descriptor, POLLOUT, 0};
    const int ready = ::poll(&stream, 1, stuck_ ? 0 : static_cast<int>(1000 * timeout_));
    if (ready < 0 && errno == EINTR) continue;
    stuck_ = ready == 0;
    if (stuck_) return;
    // A pipe that is ready takes so much without waiting.
    const ssize_t written = ::write(descriptor, text.data(), std::min<std::size_t>(text.size(), PIPE_BUF));
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return;
    text.remove_prefix(static_cast<std::size_t>(written));
  }
}

void Log::write(int descriptor, std::string_view text) {
  std::string lines = printable(text);
  if (lines.empty() || lines.back() != '\n') lines += '\n';
  const std::lock_guard lock(mutex_);
  ++lines_;
  write_to_file(lines);
  if (status_.empty()) return write_to_stream(descriptor, lines);
  write_to_stream(descriptor, kEraseLine + lines);
  write_to_stream(STDOUT_FILENO, status_);
}

void Log::show_status(std::string_view line) {
  if (!terminal_.live()) return;
  const std::lock_guard lock(mutex_);
  if (line == status_) return;
  status_ = line;
  write_to_stream(STDOUT_FILENO, kEraseLine + status_);
}

std::uint64_t Log::lines() const {
  const std::lock_guard lock(mutex_);
  return lines_;
}

void Log::info(std::string_view text) {
  if (enabled_) write(STDOUT_FILENO, text);
}

void Log::warning(std::string_view text) {
  if (enabled_) write(STDERR_FILENO, fmt::format("warning: {}", text));
}

void keep_standard_streams_open() {
  for (int descriptor = 0; descriptor <= 2; ++descriptor) {
    if (::fcntl(descriptor, F_GETFD) == -1 && errno == EBADF) {
      // open() takes the lowest free number, which is this one since all below are open. In the direction that is not
      // used: reading or writing fails as on a closed stream.
      if (::open("/dev/null", descriptor == 0 ? O_WRONLY : O_RDONLY) < 0) return;
    }
  }
}

}  // namespace megatron

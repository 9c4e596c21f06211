#include "base/terminal/line_reader.h"

#include <unistd.h>

#include <cerrno>

#include "base/core/error.h"
#include "base/system/errno_text.h"

namespace megatron {

namespace {

constexpr std::size_t kEndless = std::size_t{1} << 30;

}  // namespace

LineReader::LineReader(int descriptor, std::size_t longest)
    : descriptor_(descriptor), longest_(longest), terminal_(::isatty(descriptor) != 0) {}

LineReader::Outcome LineReader::next(std::string& line) {
  while (true) {
    const std::size_t end = buffer_.find('\n', searched_);
    if (end != std::string::npos || (ended_ && !buffer_.empty())) {
      line = buffer_.substr(0, end);
      buffer_.erase(0, end == std::string::npos ? buffer_.size() : end + 1);
      searched_ = 0;
      const bool too_long = skipped_ > 0 || line.size() > longest_;
      skipped_ = 0;
      if (too_long) line.clear();
      return too_long ? Outcome::too_long : Outcome::line;
    }
    if (ended_) {
      const bool too_long = skipped_ > 0;
      skipped_ = 0;
      return too_long ? Outcome::too_long : Outcome::end;
    }
    if (buffer_.size() > longest_) {
      skipped_ += buffer_.size();
      buffer_.clear();
    }
    if (skipped_ > kEndless) {  // /dev/zero, for instance
      ended_ = true;
      continue;
    }
    searched_ = buffer_.size();
    buffer_.resize(searched_ + (std::size_t{64} << 10));
    const ssize_t count = ::read(descriptor_, buffer_.data() + searched_, buffer_.size() - searched_);
    const int error = errno;
    buffer_.resize(searched_ + (count > 0 ? static_cast<std::size_t>(count) : 0));
    if (count < 0 && error == EINTR) {
      if (terminal_) buffer_.clear();  // the terminal itself drops all that Ctrl-D has not sent
      return Outcome::interrupted;
    }
    const bool hung_up = count < 0 && error == EIO && terminal_;
    verify(count >= 0 || hung_up, ErrorKind::filesystem, "standard input cannot be read: {}", errno_text(error));
    ended_ = count == 0 || hung_up;
  }
}

}  // namespace megatron

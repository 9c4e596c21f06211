#include "base/system/bounded_lines.h"

namespace megatron {

namespace {

constexpr std::uint64_t kBlock = 64 * 1024;

}  // namespace

bool BoundedLines::go_to_last(std::uint64_t bytes) {
  if (file_.bytes() - position() <= bytes) return false;
  read_ = file_.bytes() - bytes;
  block_.clear();
  at_ = 0;
  std::string torn;
  bool too_long = false;
  next(torn, too_long);
  return true;
}

bool BoundedLines::next(std::string& line, bool& too_long) {
  line.clear();
  too_long = ended_ = false;
  for (bool any = false;; any = true) {
    if (at_ == block_.size() && !fill()) return any;
    const std::size_t end = std::min(block_.find('\n', at_), block_.size()), room = kLongestLine - line.size();
    line.append(block_, at_, std::min(end - at_, room));
    too_long = too_long || end - at_ > room;
    ended_ = end < block_.size();
    at_ = end + (ended_ ? 1 : 0);
    if (ended_) return true;
  }
}

bool BoundedLines::fill() {
  block_.resize(std::min(kBlock, file_.bytes() - read_));
  at_ = 0;
  if (block_.empty()) return false;
  file_.read(read_, block_.data(), block_.size());
  read_ += block_.size();
  return true;
}

}  // namespace megatron

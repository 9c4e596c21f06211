#include "system/bounded_lines.h"

namespace megatron {

namespace {

constexpr std::uint64_t kBlock = 64 * 1024;

}  // namespace

bool BoundedLines::next(std::string& line, bool& too_long) {
  line.clear();
  too_long = ended_ = false;
  for (bool any = false;; any = true) {
    if (at_ == block_.size() && !fill()) return any;
    const char c = block_[at_++];
    if (c == '\n') return ended_ = true;
    if (line.size() < kLongestLine) {
      line += c;
    } else {
      too_long = true;
    }
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

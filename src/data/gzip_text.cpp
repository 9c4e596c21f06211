#include "data/gzip_text.h"

#include <zlib.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>

#include "base/error.h"

namespace megatron {

namespace {

constexpr std::size_t kReadBytes = std::size_t{1} << 20;
constexpr std::size_t kKeptBytes = std::size_t{4} << 20;

}  // namespace

bool is_gzip(const std::string& path) {
  char begin[3] = {};
  std::ifstream(path, std::ios::binary).read(begin, sizeof(begin));
  return begin[0] == '\x1F' && begin[1] == '\x8B' && begin[2] == '\x08';
}

GzipText::GzipText(const std::string& path, std::uint64_t bytes) : path_(path), bytes_(bytes) {
  file_ = ::gzopen(path.c_str(), "rb");
  const int reason = errno;
  verify(file_ != nullptr, ErrorKind::data, "{}: cannot open it: {}", path, std::strerror(reason));
  if (bytes != kUnknown) return;
  try {
    while (read_more()) window_begin_ += window_.size(), window_.clear();
    bytes_ = window_begin_;
    start_over();
  } catch (...) {
    ::gzclose(file_);
    throw;
  }
}

GzipText::~GzipText() {
  ::gzclose(file_);
}

void GzipText::start_over() {
  verify(::gzrewind(file_) == 0, ErrorKind::filesystem, "{}: cannot read it again from its beginning", path_);
  window_.clear();
  window_begin_ = 0;
}

/// Appends to the window; false at the end of the text.
bool GzipText::read_more() {
  const std::size_t old = window_.size();
  window_.resize(old + kReadBytes);
  const int got = ::gzread(file_, window_.data() + old, kReadBytes);
  window_.resize(old + static_cast<std::size_t>(std::max(got, 0)));
  int error = Z_OK;
  const char* const message = ::gzerror(file_, &error);
  if (error == Z_ERRNO) fail(ErrorKind::filesystem, "{}: cannot read it: {}", path_, std::strerror(errno));
  verify(error == Z_OK || error == Z_STREAM_END, ErrorKind::data,
         "{}: damaged behind byte {} of its text ({}); fetch or compress it again", path_,
         window_begin_ + window_.size(), message);
  return got > 0;
}

void GzipText::read(std::uint64_t first, std::uint64_t count, std::string& buffer) {
  if (first < window_begin_) start_over();
  while (window_begin_ + window_.size() < first + count) {
    // What is too far back goes, as long as it is not wanted now.
    const std::uint64_t unwanted = std::min<std::uint64_t>(first - window_begin_, window_.size());
    if (unwanted > 2 * kKeptBytes) {
      window_.erase(0, unwanted - kKeptBytes);
      window_begin_ += unwanted - kKeptBytes;
    }
    verify(read_more(), ErrorKind::data, "{}: has become shorter while it was being read", path_);
  }
  buffer.assign(window_, first - window_begin_, count);
}

}  // namespace megatron

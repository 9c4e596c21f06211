#include "data/gzip_text.h"

#include <zlib.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <fstream>
#include <string_view>

#include "base/errno_text.h"
#include "base/error.h"

namespace megatron {

namespace {

constexpr std::size_t kReadBytes = std::size_t{1} << 20;
constexpr std::size_t kKeptBytes = std::size_t{4} << 20;

using namespace std::string_view_literals;

/// A '?' of its beginning is any byte.
struct Compression {
  std::string_view begin;
  const char *name, *unpack;
};
constexpr Compression kOthers[] = {{"BZh?\x31\x41\x59\x26\x53\x59"sv, "bzip2", "bunzip2"},
                                   {"BZh?\x17\x72\x45\x38\x50\x90"sv, "bzip2", "bunzip2"},  // of nothing
                                   {"\xFD\x37zXZ\0"sv, "xz", "unxz"},
                                   {"\x28\xB5\x2F\xFD"sv, "zstd", "unzstd"},
                                   {"\x04\x22\x4D\x18"sv, "lz4", "unlz4"},
                                   {"PK\x03\x04"sv, "zip", "unzip"}};
constexpr std::size_t kLongestBegin = 10;

/// The first bytes of a file: fewer if it has no more, none if it cannot be read or is no file (opening a pipe waits
/// for who fills it).
std::string first_bytes(const std::string& path, std::size_t count) {
  std::error_code ignored;
  if (!std::filesystem::is_regular_file(path, ignored)) return {};
  std::string begin(count, '\0');
  std::ifstream file(path, std::ios::binary);
  file.read(begin.data(), static_cast<std::streamsize>(count));
  begin.resize(static_cast<std::size_t>(file.gcount()));
  return begin;
}

}  // namespace

bool is_gzip(const std::string& path) {
  return first_bytes(path, 3) == "\x1F\x8B\x08"sv;
}

void refuse_other_compression(const std::string& path) {
  const std::string begin = first_bytes(path, kLongestBegin);
  for (const Compression& other : kOthers) {
    const bool found = begin.size() >= other.begin.size() &&
                       std::equal(other.begin.begin(), other.begin.end(), begin.begin(),
                                  [](char wanted, char c) { return wanted == '?' || wanted == c; });
    verify(!found, ErrorKind::data,
           "{}: compressed by {}, which is not unpacked here; unpack it ({}), or compress it by gzip instead", path,
           other.name, other.unpack);
  }
}

GzipText::GzipText(const std::string& path, std::uint64_t bytes) : path_(path), bytes_(bytes) {
  file_ = ::gzopen(path.c_str(), "rb");
  const int reason = errno;
  if (file_ == nullptr) fail(ErrorKind::data, "{}: cannot open it: {}", path, errno_text(reason));
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
  const int reason = errno;
  window_.resize(old + static_cast<std::size_t>(std::max(got, 0)));
  int error = Z_OK;
  const char* const message = ::gzerror(file_, &error);
  if (error == Z_ERRNO) fail(ErrorKind::filesystem, "{}: cannot read it: {}", path_, errno_text(reason));
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

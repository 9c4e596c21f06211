#include "data/preprocess/gzip_text.h"

#include <zlib.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <string_view>

#include "base/core/error.h"

namespace megatron {

namespace {

constexpr std::size_t kReadBytes = std::size_t{1} << 20;
constexpr std::size_t kKeptBytes = std::size_t{4} << 20;
constexpr std::size_t kPackedBytes = std::size_t{256} << 10;

using namespace std::string_view_literals;

/// A '?' of its beginning is any byte.
struct Compression {
  std::string_view begin;
  const char *name, *unpack;
};
constexpr Compression kOthers[] = {{"BZh?\x31\x41\x59\x26\x53\x59"sv, "bzip2", "bunzip2"},
                                   {"BZh?\x17\x72\x45\x38\x50\x90"sv, "bzip2", "bunzip2"},  // an empty text
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

void GzipText::EndInflation::operator()(z_stream_s* stream) const {
  ::inflateEnd(stream);
  delete stream;
}

GzipText::GzipText(const std::string& path, std::uint64_t bytes)
    : file_(path, ErrorKind::data), bytes_(bytes), stream_(new z_stream_s{}) {
  constexpr int kGzipWindow = 15 + 16;  // the largest window, in gzip's wrapping
  verify(::inflateInit2(stream_.get(), kGzipWindow) == Z_OK, ErrorKind::filesystem, "{}: no memory to unpack it", path);
  if (bytes != kUnknown) return;
  while (read_more()) window_begin_ += window_.size(), window_.clear();
  bytes_ = window_begin_;
  start_over();
}

void GzipText::start_over() {
  ::inflateReset(stream_.get());
  stream_->avail_in = 0;
  packed_begin_ = 0;
  packed_.clear();
  between_members_ = true;
  window_.clear();
  window_begin_ = 0;
}

/// Gives the stream the file's next bytes; false at its end.
bool GzipText::refill() {
  packed_begin_ += packed_.size();
  packed_.resize(std::min<std::uint64_t>(kPackedBytes, file_.bytes() - packed_begin_));
  file_.read(packed_begin_, packed_.data(), packed_.size());
  stream_->next_in = reinterpret_cast<unsigned char*>(packed_.data());
  stream_->avail_in = static_cast<unsigned>(packed_.size());
  return !packed_.empty();
}

/// Appends to the window; false at the end of the text.
bool GzipText::read_more() {
  const std::size_t old = window_.size();
  window_.resize(old + kReadBytes);
  stream_->next_out = reinterpret_cast<unsigned char*>(window_.data() + old);
  stream_->avail_out = kReadBytes;
  while (stream_->avail_out > 0 && (stream_->avail_in > 0 || refill())) {
    const std::uint64_t at = packed_begin_ + packed_.size() - stream_->avail_in;
    if (between_members_) member_begin_ = at;
    const int result = ::inflate(stream_.get(), Z_NO_FLUSH);
    // zlib's own reader of gzip files would silently drop what follows the last good member.
    verify(result != Z_DATA_ERROR || stream_->total_out > 0, ErrorKind::data,
           "{}: damaged: no gzip member begins at byte {} ({}), and what follows would be lost; cut it off there if it "
           "does not belong to the text, or fetch the file again",
           file_.path(), member_begin_, stream_->msg);
    verify(result == Z_OK || result == Z_STREAM_END, ErrorKind::data,
           "{}: damaged after byte {} of its text ({}); fetch or compress it again", file_.path(),
           window_begin_ + old + kReadBytes - stream_->avail_out,
           stream_->msg != nullptr ? stream_->msg : "it needs a dictionary");
    between_members_ = result == Z_STREAM_END;
    if (between_members_) ::inflateReset(stream_.get());
  }
  window_.resize(old + kReadBytes - stream_->avail_out);
  verify(stream_->avail_out == 0 || between_members_, ErrorKind::data,
         "{}: damaged after byte {} of its text (unexpected end of file); fetch or compress it again", file_.path(),
         window_begin_ + window_.size());
  return window_.size() > old;
}

void GzipText::read(std::uint64_t first, std::uint64_t count, std::string& buffer) {
  if (first < window_begin_) start_over();
  while (window_begin_ + window_.size() < first + count) {
    // Text that is too far back is dropped, as long as it is not wanted now.
    const std::uint64_t unwanted = std::min<std::uint64_t>(first - window_begin_, window_.size());
    if (unwanted > 2 * kKeptBytes) {
      window_.erase(0, unwanted - kKeptBytes);
      window_begin_ += unwanted - kKeptBytes;
    }
    verify(read_more(), ErrorKind::data, "{}: has become shorter while it was being read", file_.path());
  }
  buffer.assign(window_, first - window_begin_, count);
}

}  // namespace megatron

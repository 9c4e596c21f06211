#include "data/preprocess/packed_text.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <string_view>

#include "base/core/error.h"
#include "data/preprocess/bzip2_text.h"
#include "data/preprocess/gzip_text.h"
#include "data/preprocess/zstd_text.h"

namespace megatron {

namespace {

constexpr std::size_t kUnpackedBytes = std::size_t{1} << 20;
constexpr std::size_t kKeptBytes = std::size_t{4} << 20;
constexpr std::size_t kPackedBytes = std::size_t{256} << 10;

using namespace std::string_view_literals;

struct Compression {
  std::string_view begin;
  const char *name, *unpack;
};
constexpr Compression kOthers[] = {
    {"\xFD\x37zXZ\0"sv, "xz", "unxz"}, {"\x04\x22\x4D\x18"sv, "lz4", "unlz4"}, {"PK\x03\x04"sv, "zip", "unzip"}};
constexpr std::size_t kLongestBegin = 6;

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

bool begins_with(const std::string& path, std::string_view bytes) {
  return first_bytes(path, bytes.size()) == bytes;
}

void refuse_other_compression(const std::string& path) {
  const std::string begin = first_bytes(path, kLongestBegin);
  for (const Compression& other : kOthers) {
    verify(!begin.starts_with(other.begin), ErrorKind::data,
           "{}: compressed by {}, which is not unpacked here; unpack it ({}), or compress it by gzip or zstd instead",
           path, other.name, other.unpack);
  }
}

std::unique_ptr<PackedText> open_packed(const std::string& path, std::uint64_t bytes) {
  if (is_gzip(path)) return std::make_unique<GzipText>(path, bytes);
  if (is_zstd(path)) return std::make_unique<ZstdText>(path, bytes);
  if (is_bzip2(path)) return std::make_unique<Bzip2Text>(path, bytes);
  return nullptr;
}

void PackedText::set_bytes(std::uint64_t bytes) {
  bytes_ = bytes;
  if (bytes != kUnknown) return;
  while (read_more()) window_begin_ += window_.size(), window_.clear();
  bytes_ = window_begin_;
  start_over();
}

void PackedText::start_over() {
  reset();
  packed_begin_ = 0;
  packed_.clear();
  window_.clear();
  window_begin_ = 0;
}

const std::string& PackedText::next_packed() {
  packed_begin_ += packed_.size();
  packed_.resize(std::min<std::uint64_t>(kPackedBytes, file_.bytes() - packed_begin_));
  file_.read(packed_begin_, packed_.data(), packed_.size());
  return packed_;
}

/// Appends to the window; false at the end of the text.
bool PackedText::read_more() {
  const std::size_t old = window_.size();
  window_.resize(old + kUnpackedBytes);
  window_.resize(old + unpack(window_.data() + old, kUnpackedBytes, window_begin_ + old));
  return window_.size() > old;
}

void PackedText::read(std::uint64_t first, std::uint64_t count, std::string& buffer) {
  if (first < window_begin_) start_over();
  while (window_begin_ + window_.size() < first + count) {
    // Text that is too far back is dropped, as long as it is not wanted now.
    const std::uint64_t unwanted = std::min<std::uint64_t>(first - window_begin_, window_.size());
    if (unwanted > 2 * kKeptBytes) {
      window_.erase(0, unwanted - kKeptBytes);
      window_begin_ += unwanted - kKeptBytes;
    }
    verify(read_more(), ErrorKind::data, "{}: has become shorter while it was being read", path());
  }
  buffer.assign(window_, first - window_begin_, count);
}

}  // namespace megatron

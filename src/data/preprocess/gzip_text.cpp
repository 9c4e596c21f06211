#include "data/preprocess/gzip_text.h"

#include <zlib.h>

#include <string_view>

#include "base/core/error.h"

namespace megatron {

using namespace std::string_view_literals;

bool is_gzip(const std::string& path) {
  return begins_with(path, "\x1F\x8B\x08"sv);
}

void GzipText::EndInflation::operator()(z_stream_s* stream) const {
  ::inflateEnd(stream);
  delete stream;
}

GzipText::GzipText(const std::string& path, std::uint64_t bytes) : PackedText(path), stream_(new z_stream_s{}) {
  constexpr int kGzipWindow = 15 + 16;  // the largest window, in gzip's wrapping
  verify(::inflateInit2(stream_.get(), kGzipWindow) == Z_OK, ErrorKind::filesystem, "{}: no memory to unpack it", path);
  set_bytes(bytes);
}

void GzipText::reset() {
  ::inflateReset(stream_.get());
  stream_->avail_in = 0;
  between_members_ = true;
}

/// Gives the stream the file's next bytes; false at its end.
bool GzipText::refill() {
  const std::string& packed = next_packed();
  stream_->next_in = reinterpret_cast<unsigned char*>(const_cast<char*>(packed.data()));
  stream_->avail_in = static_cast<unsigned>(packed.size());
  return !packed.empty();
}

std::size_t GzipText::unpack(char* to, std::size_t room, std::uint64_t at) {
  stream_->next_out = reinterpret_cast<unsigned char*>(to);
  stream_->avail_out = static_cast<unsigned>(room);
  while (stream_->avail_out > 0 && (stream_->avail_in > 0 || refill())) {
    if (between_members_) member_begin_ = packed_end() - stream_->avail_in;
    const int result = ::inflate(stream_.get(), Z_NO_FLUSH);
    // zlib's own reader of gzip files would silently drop what follows the last good member.
    verify(result != Z_DATA_ERROR || stream_->total_out > 0, ErrorKind::data,
           "{}: damaged: no gzip member begins at byte {} ({}), and what follows would be lost; cut it off there if it "
           "does not belong to the text, or fetch the file again",
           path(), member_begin_, stream_->msg);
    verify(result == Z_OK || result == Z_STREAM_END, ErrorKind::data,
           "{}: damaged after byte {} of its text ({}); fetch or compress it again", path(),
           at + room - stream_->avail_out, stream_->msg != nullptr ? stream_->msg : "it needs a dictionary");
    between_members_ = result == Z_STREAM_END;
    if (between_members_) ::inflateReset(stream_.get());
  }
  const std::size_t done = room - stream_->avail_out;
  verify(stream_->avail_out == 0 || between_members_, ErrorKind::data,
         "{}: damaged after byte {} of its text (unexpected end of file); fetch or compress it again", path(),
         at + done);
  return done;
}

}  // namespace megatron

#include "data/preprocess/bzip2_text.h"

#include <bzlib.h>

#include "base/core/error.h"

namespace megatron {

bool is_bzip2(const std::string& path) {
  using namespace std::string_view_literals;
  if (!begins_with(path, "BZh")) return false;
  for (const char level : "123456789"sv) {
    const std::string begin = std::string("BZh") + level;
    // A block, or the end of an empty text.
    if (begins_with(path, begin + "1AY&SY") || begins_with(path, begin + "\x17\x72\x45\x38\x50\x90")) return true;
  }
  return false;
}

/// libbz2's state. Open: within a stream of the file.
struct Bzip2Text::Stream {
  bz_stream bz{};
  bool open = false;
  std::uint64_t begin = 0;  // where it begins in the file

  /// Starts a stream with the input that is there.
  void start(const std::string& path, std::uint64_t at) {
    char* const next_in = bz.next_in;  // the documentation does not promise that starting keeps them
    const unsigned avail_in = bz.avail_in;
    verify(::BZ2_bzDecompressInit(&bz, 0, 0) == BZ_OK, ErrorKind::filesystem, "{}: no memory to unpack it", path);
    bz.next_in = next_in;
    bz.avail_in = avail_in;
    open = true;
    begin = at;
  }
  void end() {
    if (open) ::BZ2_bzDecompressEnd(&bz);
    open = false;
  }
  ~Stream() { end(); }
};

Bzip2Text::Bzip2Text(const std::string& path, std::uint64_t bytes)
    : PackedText(path), stream_(std::make_unique<Stream>()) {
  set_bytes(bytes);
}

Bzip2Text::~Bzip2Text() = default;

void Bzip2Text::reset() {
  stream_->end();
  stream_->bz.avail_in = 0;
}

/// Gives the stream the file's next bytes; false at its end.
bool Bzip2Text::refill() {
  const std::string& packed = next_packed();
  stream_->bz.next_in = const_cast<char*>(packed.data());  // libbz2 only reads it
  stream_->bz.avail_in = static_cast<unsigned>(packed.size());
  return !packed.empty();
}

std::size_t Bzip2Text::unpack(char* to, std::size_t room, std::uint64_t at) {
  bz_stream& bz = stream_->bz;
  std::size_t left = room;
  while (left > 0 && (bz.avail_in > 0 || refill())) {
    if (!stream_->open) stream_->start(path(), packed_end() - bz.avail_in);
    bz.next_out = to + (room - left);
    bz.avail_out = static_cast<unsigned>(left);
    const int result = ::BZ2_bzDecompress(&bz);
    left = bz.avail_out;
    verify(result != BZ_MEM_ERROR, ErrorKind::filesystem, "{}: no memory to unpack it", path());
    verify(
        result != BZ_DATA_ERROR_MAGIC, ErrorKind::data,
        "{}: damaged: no bzip2 stream begins at byte {}, and what follows would be lost; cut it off there if it does "
        "not belong to the text, or fetch the file again",
        path(), stream_->begin);
    verify(result == BZ_OK || result == BZ_STREAM_END, ErrorKind::data,
           "{}: damaged after byte {} of its text, in the bzip2 stream at byte {}; fetch or compress it again", path(),
           at + room - left, stream_->begin);
    if (result == BZ_STREAM_END) stream_->end();
  }
  verify(left == 0 || !stream_->open, ErrorKind::data,
         "{}: damaged after byte {} of its text (unexpected end of file); fetch or compress it again", path(),
         at + room - left);
  return room - left;
}

}  // namespace megatron

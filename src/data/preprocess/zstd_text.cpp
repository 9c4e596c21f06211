#include "data/preprocess/zstd_text.h"

#include <zstd.h>

#include <string_view>

#include "base/core/error.h"

namespace megatron {

namespace {

constexpr int kLargestWindowLog = 27;  // 128 MiB

}  // namespace

bool is_zstd(const std::string& path) {
  return begins_with(path, "\x28\xB5\x2F\xFD");
}

void ZstdText::End::operator()(ZSTD_DCtx_s* stream) const {
  ::ZSTD_freeDCtx(stream);
}

ZstdText::ZstdText(const std::string& path, std::uint64_t bytes) : PackedText(path), stream_(::ZSTD_createDCtx()) {
  verify(stream_ != nullptr, ErrorKind::filesystem, "{}: no memory to unpack it", path);
  ::ZSTD_DCtx_setParameter(stream_.get(), ZSTD_d_windowLogMax, kLargestWindowLog);
  set_bytes(bytes);
}

void ZstdText::reset() {
  ::ZSTD_DCtx_reset(stream_.get(), ZSTD_reset_session_only);
  packed_bytes_ = packed_at_ = 0;
  between_frames_ = true;
}

std::size_t ZstdText::unpack(char* to, std::size_t room, std::uint64_t at) {
  ZSTD_outBuffer out{to, room, 0};
  while (out.pos < room) {
    if (packed_at_ == packed_bytes_) {
      const std::string& packed = next_packed();
      packed_ = packed.data();
      packed_bytes_ = packed.size();
      packed_at_ = 0;
    }
    // At the file's end the stream may still hold text.
    ZSTD_inBuffer in{packed_, packed_bytes_, packed_at_};
    if (in.size == 0 && between_frames_) break;
    const std::size_t before = out.pos;
    const std::uint64_t place = packed_end() - (packed_bytes_ - packed_at_);
    const std::size_t result = ::ZSTD_decompressStream(stream_.get(), &out, &in);
    packed_at_ = in.pos;
    verify(::ZSTD_isError(result) == 0 || !between_frames_, ErrorKind::data,
           "{}: damaged: no zstd frame that can be unpacked begins at byte {} ({}); fetch it again, or compress it "
           "again without --ultra --long",
           path(), place, ::ZSTD_getErrorName(result));
    verify(::ZSTD_isError(result) == 0, ErrorKind::data,
           "{}: damaged after byte {} of its text ({}); fetch or compress it again", path(), at + out.pos,
           ::ZSTD_getErrorName(result));
    verify(in.size > 0 || out.pos > before || result == 0, ErrorKind::data,
           "{}: damaged after byte {} of its text (unexpected end of file); fetch or compress it again", path(),
           at + out.pos);
    between_frames_ = result == 0;
  }
  return out.pos;
}

}  // namespace megatron

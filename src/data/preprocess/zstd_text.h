// ZstdText: the text of a zstd file. Files of several frames are one text; anything else after a frame is damage.
// Frames whose window is larger than 128 MiB (zstd --ultra --long=28 and more) are refused: memory stays bounded.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "data/preprocess/packed_text.h"

struct ZSTD_DCtx_s;

namespace megatron {

/// Whether the file begins as zstd files do. Nothing is said about files that cannot be read.
bool is_zstd(const std::string& path);

class ZstdText final : public PackedText {
 public:
  explicit ZstdText(const std::string& path, std::uint64_t bytes = kUnknown);

 private:
  struct End {
    void operator()(ZSTD_DCtx_s* stream) const;
  };
  std::size_t unpack(char* to, std::size_t room, std::uint64_t at) override;
  void reset() override;

  std::unique_ptr<ZSTD_DCtx_s, End> stream_;
  const char* packed_ = nullptr;
  std::size_t packed_bytes_ = 0, packed_at_ = 0;
  bool between_frames_ = true;
};

}  // namespace megatron

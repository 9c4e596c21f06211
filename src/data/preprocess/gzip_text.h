// GzipText: the text of a gzip file. Files of several members are one text; anything else after a member is damage.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "data/preprocess/packed_text.h"

struct z_stream_s;

namespace megatron {

/// Whether the file begins as gzip files do. Nothing is said about files that cannot be read.
bool is_gzip(const std::string& path);

class GzipText final : public PackedText {
 public:
  explicit GzipText(const std::string& path, std::uint64_t bytes = kUnknown);

 private:
  struct EndInflation {
    void operator()(z_stream_s* stream) const;
  };
  bool refill();
  std::size_t unpack(char* to, std::size_t room, std::uint64_t at) override;
  void reset() override;

  std::unique_ptr<z_stream_s, EndInflation> stream_;
  std::uint64_t member_begin_ = 0;
  bool between_members_ = true;
};

}  // namespace megatron

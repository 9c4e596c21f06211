// Bzip2Text: the text of a bzip2 file. Files of several streams, as the "multistream" dumps of Wikipedia, are one text;
// anything else after a stream is damage. Its checksums are checked by libbz2 as it goes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "data/preprocess/packed_text.h"

namespace megatron {

/// Whether the file begins as bzip2 files do. Nothing is said about files that cannot be read.
bool is_bzip2(const std::string& path);

class Bzip2Text final : public PackedText {
 public:
  explicit Bzip2Text(const std::string& path, std::uint64_t bytes = kUnknown);
  ~Bzip2Text() override;

 private:
  struct Stream;
  bool refill();
  std::size_t unpack(char* to, std::size_t room, std::uint64_t at) override;
  void reset() override;

  std::unique_ptr<Stream> stream_;
};

}  // namespace megatron

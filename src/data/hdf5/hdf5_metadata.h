// The metadata of an HDF5 file, read from its bytes without the library: blocks that carry a signature and a checksum,
// and the numbers in them. Private to the reader of this layer.
//
// Trusts nothing: a block must lie in the file, overlap no other block, and hold what is taken out of it, before a byte
// of it is used. Format: "HDF5 File Format Specification, Version 3.0", of which only what this program writes is read.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/system/regular_file.h"

namespace megatron {

inline constexpr std::uint64_t kNoAddress = ~std::uint64_t{0};

/// Takes little-endian numbers from the front of a block. Taking more than there is throws an error.
class Hdf5Fields {
 public:
  Hdf5Fields(std::span<const std::byte> bytes, const RegularFile& file) : bytes_(bytes), file_(&file) {}

  std::uint64_t number(std::size_t bytes);
  std::uint64_t address() { return number(8); }
  std::span<const std::byte> take(std::uint64_t bytes);
  std::string text(std::uint64_t bytes);
  std::size_t left() const { return bytes_.size(); }
  Hdf5Fields part(std::uint64_t bytes) { return {take(bytes), *file_}; }
  /// Throws "FILE: damaged, or not made by this program: REASON".
  [[noreturn]] void refuse(std::string_view reason) const;

 private:
  std::span<const std::byte> bytes_;
  const RegularFile* file_;
};

/// One file: its bytes, and which of them have been spoken for.
class Hdf5Storage {
 public:
  explicit Hdf5Storage(std::shared_ptr<const RegularFile> file);

  const RegularFile& file() const { return *file_; }
  const std::shared_ptr<const RegularFile>& shared_file() const { return file_; }
  std::uint64_t root() const { return root_; }  ///< address of the root group

  /// Bytes that nothing else may be in; an error if they do not lie in the file or overlap what was claimed before.
  void claim(std::uint64_t address, std::uint64_t bytes);
  /// Claims a block and reads it. It ends with a checksum, which is verified and not part of the result.
  std::vector<std::byte> block(std::uint64_t address, std::uint64_t bytes);
  /// The first bytes of a block, whose signature must be this; as many as there are, unclaimed.
  std::vector<std::byte> peek(std::uint64_t address, std::uint64_t bytes, std::string_view signature) const;
  [[noreturn]] void refuse(std::string_view reason) const;

 private:
  void check_lies_in_file(std::uint64_t address, std::uint64_t bytes) const;
  std::shared_ptr<const RegularFile> file_;
  std::map<std::uint64_t, std::uint64_t> claims_;  // from the first to after the last byte
  std::uint64_t root_ = 0;
};

}  // namespace megatron

// The single-byte encodings that UTF-8 is read in by mistake, and Unicode's categories of their characters.
// mojibake_tables.cpp is made by scripts/tables/make_repair_tables.py. All tables are ascending.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

namespace megatron {

/// Unicode's general categories of characters of the encodings.
enum class Category : std::uint8_t {
  kCc,
  kCf,
  kCo,
  kLl,
  kLm,
  kLo,
  kLu,
  kNo,
  kPd,
  kPf,
  kPi,
  kPo,
  kPs,
  kSc,
  kSk,
  kSm,
  kSo,
  kZs
};
enum class Script : std::uint8_t { common, latin, greek, cyrillic };

/// A character of some encoding's bytes from 0x80 on. The script is that of letters.
struct KnownCharacter {
  char16_t c;
  Category category;
  Script script;
};

/// ASCII and these characters for the bytes from 0x80 on. A byte that the encoding leaves undefined stands for the
/// character of the same number; `undefined` says whether there are any.
struct SingleByteEncoding {
  std::string_view name;
  bool undefined;
  char16_t high[128];
};
inline constexpr std::size_t kSingleByteEncodings = 10;

/// In the order in which they are tried; Latin-1 and Windows-1252 are the first.
std::span<const SingleByteEncoding, kSingleByteEncodings> single_byte_encodings();
std::span<const KnownCharacter> known_characters();

}  // namespace megatron

// Megatron-LM's indexed data sets: PREFIX.idx, which says where each sequence of tokens is, and PREFIX.bin, the tokens.
// Read by IndexedReader, written by IndexedWriter; here is what both know of the files.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <string_view>

namespace megatron {

/// Types of tokens, by their numbers in a file.
enum class IndexedType : std::uint8_t { u8 = 1, i8 = 2, i16 = 3, i32 = 4, i64 = 5, u16 = 8 };

std::uint64_t bytes_of(IndexedType type);
std::string_view name_of(IndexedType type);  ///< numpy's
/// ErrorKind::configuration if there is no such type.
IndexedType indexed_type(std::string_view name);
/// The type that Megatron's preprocessing takes for a vocabulary of this size.
IndexedType indexed_type_for(std::uint64_t vocab_size);
/// The type of this number in a file, if it is one of tokens.
std::optional<IndexedType> indexed_type_of(std::uint64_t code);

/// Calls `use` with the C++ type that the tokens have.
template <class Use>
void with_type(IndexedType type, Use&& use) {
  switch (type) {
    case IndexedType::u8: return use(std::uint8_t{});
    case IndexedType::i8: return use(std::int8_t{});
    case IndexedType::i16: return use(std::int16_t{});
    case IndexedType::i32: return use(std::int32_t{});
    case IndexedType::i64: return use(std::int64_t{});
    case IndexedType::u16: return use(std::uint16_t{});
  }
}

namespace indexed {

/// The two formats of the index, little-endian:
///
///   mmap      "MMIDIDX\0\0", u64 version 1, u8 type, u64 sequences n, u64 entries of the document index D;
///             i32 lengths [n], i64 offsets in PREFIX.bin [n] (bytes), i64 document index [D]
///   TNTIDX    (the cached and lazy formats) "TNTIDX\0\0", u64 version 1, u64 type, u64 bytes of an element, u64
///             sequences n, u64 lengths m, u64 D; i64 where each sequence's lengths begin [n + 1], i64 where its
///             elements begin [n + 1], i64 lengths [m], i64 document index [D]
///
/// The document index holds the first sequence of each document and, last, n.
inline constexpr std::string_view kMmapMagic{"MMIDIDX\0\0", 9}, kTntidxMagic{"TNTIDX\0\0", 8};
inline constexpr std::uint64_t kVersion = 1;
inline constexpr std::int64_t kLongest = std::numeric_limits<std::int32_t>::max();  ///< tokens of a sequence
inline constexpr std::uint64_t kBufferBytes = 1 << 20;

}  // namespace indexed

}  // namespace megatron

// PieceCache: the ids of pieces of text that have been seen lately. A table of fixed size; a new piece takes the place
// of the older one of the two that share its line. It only saves work: what it does not hold is computed.
//
// Bytes is the longest piece it holds, one less than a multiple of 8; a longer key would rarely be met again.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <span>
#include <vector>

namespace megatron {

template <std::size_t Bytes, std::size_t Ids>
class PieceCache {
 public:
  static constexpr std::size_t kBytes = Bytes, kIds = Ids;
  static constexpr std::size_t kWords = (Bytes + 1) / 8;

  /// A piece, padded with zeros; its length is the last byte.
  struct Key {
    std::array<std::uint64_t, kWords> words;
    bool operator==(const Key& other) const {  // the compiler's own would call memcmp
      std::uint64_t difference = 0;
      for (std::size_t i = 0; i < kWords; ++i) difference |= words[i] ^ other.words[i];
      return difference == 0;
    }
  };
  struct Entry {
    Key key{};  // no piece has length 0
    std::array<std::int32_t, Ids> ids{};
    std::uint32_t count = 0;
  };

  /// 2^(bits + 1) entries.
  explicit PieceCache(int bits) : shift_(64 - bits), lines_(std::size_t{1} << bits) {}

  /// `length` is 1 .. Bytes, of which `readable` bytes may be read (at least `length`).
  static Key key_of(const char* piece, std::size_t length, std::size_t readable) {
    Key key{};
    if (readable >= 8 * kWords) [[likely]] {
      std::memcpy(key.words.data(), piece, 8 * kWords);
      for (std::size_t i = 0; i < kWords; ++i) key.words[i] &= mask(length, i);
    } else {
      std::memcpy(key.words.data(), piece, length);
    }
    key.words[kWords - 1] |= std::uint64_t{length} << 56;
    return key;
  }

  void prefetch(const Key& key) const { __builtin_prefetch(&lines_[line_of(key)]); }

  /// The entry of this key, or nullptr.
  const Entry* find(const Key& key) const {
    const Line& line = lines_[line_of(key)];
    if (line[0].key == key) [[likely]]
      return &line[0];
    return line[1].key == key ? &line[1] : nullptr;
  }

  /// At most Ids ids.
  void insert(const Key& key, std::span<const std::int32_t> ids) {
    Line& line = lines_[line_of(key)];
    line[1] = line[0];
    line[0].key = key;
    line[0].count = static_cast<std::uint32_t>(ids.size());
    std::copy(ids.begin(), ids.end(), line[0].ids.begin());
  }

 private:
  using Line = std::array<Entry, 2>;

  /// The bits of word i that belong to a piece of this length.
  static std::uint64_t mask(std::size_t length, std::size_t i) {
    const std::size_t bytes = length > 8 * i ? length - 8 * i : 0;
    return bytes >= 8 ? ~std::uint64_t{0} : (std::uint64_t{1} << 8 * bytes) - 1;
  }
  std::size_t line_of(const Key& key) const {
    std::uint64_t hash = 0;
    for (const std::uint64_t word : key.words) hash = (hash ^ word) * 0x9E3779B97F4A7C15u, hash ^= hash >> 32;
    return static_cast<std::size_t>(hash * 0x9E3779B97F4A7C15u >> shift_);
  }

  int shift_;
  std::vector<Line> lines_;
};

// Most words of most languages fit into the first, with kSpaceMark; both together take five megabytes.
using ShortPieces = PieceCache<15, 3>;
using LongPieces = PieceCache<31, 7>;
inline constexpr int kShortPieceBits = 16, kLongPieceBits = 13;

}  // namespace megatron

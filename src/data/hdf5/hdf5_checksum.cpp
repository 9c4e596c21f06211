#include "data/hdf5/hdf5_checksum.h"

#include <xxhash.h>

#include <algorithm>
#include <array>
#include <bit>

namespace megatron {

namespace {

using std::rotl;

/// Up to 12 bytes, added to three little-endian words.
void add_words(std::array<std::uint32_t, 3>& words, std::span<const std::byte> bytes) {
  for (std::size_t i = 0; i < bytes.size(); ++i)
    words[i / 4] += std::to_integer<std::uint32_t>(bytes[i]) << 8 * (i % 4);
}

std::uint32_t lookup3(std::span<const std::byte> bytes) {
  const auto start = 0xdeadbeefu + static_cast<std::uint32_t>(bytes.size());
  std::array<std::uint32_t, 3> words{start, start, start};
  if (bytes.empty()) return start;
  auto& [a, b, c] = words;
  while (bytes.size() > 12) {
    add_words(words, bytes.first(12));
    bytes = bytes.subspan(12);
    a = (a - c) ^ rotl(c, 4), c += b;
    b = (b - a) ^ rotl(a, 6), a += c;
    c = (c - b) ^ rotl(b, 8), b += a;
    a = (a - c) ^ rotl(c, 16), c += b;
    b = (b - a) ^ rotl(a, 19), a += c;
    c = (c - b) ^ rotl(b, 4), b += a;
  }
  add_words(words, bytes);
  c = (c ^ b) - rotl(b, 14);
  a = (a ^ c) - rotl(c, 11);
  b = (b ^ a) - rotl(a, 25);
  c = (c ^ b) - rotl(b, 16);
  a = (a ^ c) - rotl(c, 4);
  b = (b ^ a) - rotl(a, 14);
  return (c ^ b) - rotl(b, 24);
}

/// Folds the carries of a sum modulo 65535 back into 16 bits, as far as one addition does.
std::uint32_t folded(std::uint32_t sum) {
  return (sum & 0xffff) + (sum >> 16);
}

std::uint32_t fletcher32(std::span<const std::byte> bytes) {
  constexpr std::size_t kBeforeFolding = 720;  // bytes: more words could overflow the second sum
  std::uint32_t first = 0, second = 0;
  while (!bytes.empty()) {
    const auto part = bytes.first(std::min(bytes.size(), kBeforeFolding));
    for (std::size_t i = 0; i < part.size(); i += 2) {
      first += std::to_integer<std::uint32_t>(part[i]) << 8;
      if (i + 1 < part.size()) first += std::to_integer<std::uint32_t>(part[i + 1]);
      second += first;
    }
    first = folded(first), second = folded(second);
    bytes = bytes.subspan(part.size());
  }
  return folded(second) << 16 | folded(first);
}

}  // namespace

bool metadata_checksum_holds(std::span<const std::byte> block, std::uint32_t stored) {
  return lookup3(block) == stored;
}

bool chunk_checksum_holds(std::span<const std::byte> chunk, std::uint32_t stored) {
  return fletcher32(chunk) == stored;
}

bool hash_holds(std::span<const std::byte> bytes, std::uint64_t seed, std::uint64_t stored) {
  return XXH3_64bits_withSeed(bytes.data(), bytes.size(), seed) == stored;
}

}  // namespace megatron

// Philox4x32-7 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC'11): random numbers as a pure
// function.
//
// There is no generator state anywhere in the program. A random number is a function of a key (what it is for) and a
// counter (which global element it belongs to), so that a dropout mask or an initial weight is the same on every
// layout.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

namespace megatron {

using PhiloxCounter = std::array<std::uint32_t, 4>;

inline constexpr std::uint32_t kPhiloxMultiplier0 = 0xD2511F53u, kPhiloxMultiplier1 = 0xCD9E8D57u;
inline constexpr std::uint32_t kPhiloxWeyl0 = 0x9E3779B9u, kPhiloxWeyl1 = 0xBB67AE85u;

/// `Rounds` rounds of Philox4x32: four uniform 32-bit words for this counter under this key.
template <int Rounds = 7>
constexpr PhiloxCounter philox4x32(PhiloxCounter c, std::uint64_t key) {
  auto k0 = static_cast<std::uint32_t>(key), k1 = static_cast<std::uint32_t>(key >> 32);
  for (int round = 0; round < Rounds; ++round) {
    const std::uint64_t p0 = std::uint64_t{kPhiloxMultiplier0} * c[0];
    const std::uint64_t p1 = std::uint64_t{kPhiloxMultiplier1} * c[2];
    c = {static_cast<std::uint32_t>(p1 >> 32) ^ c[1] ^ k0, static_cast<std::uint32_t>(p1),
         static_cast<std::uint32_t>(p0 >> 32) ^ c[3] ^ k1, static_cast<std::uint32_t>(p0)};
    k0 += kPhiloxWeyl0;
    k1 += kPhiloxWeyl1;
  }
  return c;
}

/// SplitMix64's finaliser: mixes 64 bits bijectively.
constexpr std::uint64_t mix64(std::uint64_t x) {
  x += 0x9E3779B97F4A7C15ull;
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9ull;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBull;
  return x ^ (x >> 31);
}

/// A Philox key for (seed, step, site); any two different triples give unrelated streams.
constexpr std::uint64_t random_key(std::uint64_t seed, std::uint64_t step, std::uint64_t site) {
  return mix64(mix64(mix64(seed) ^ step) ^ site);
}

/// 64-bit FNV-1a of a name: the `site` of an initial weight is the hash of its parameter's name.
constexpr std::uint64_t hash_name(std::string_view name) {
  std::uint64_t hash = 0xCBF29CE484222325ull;
  for (const char c : name) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001B3ull;
  return hash;
}

}  // namespace megatron

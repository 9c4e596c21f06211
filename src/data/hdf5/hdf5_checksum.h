// The checksums of an HDF5 file: the two of the format, and our hashes. The functions that compare are alone in their
// file, so that the fuzz targets can replace them by ones that accept everything, and reach the code behind them
// (tests/fuzz/no_checksums.cpp).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace megatron {

/// Bytes of either of the format's checksums.
inline constexpr std::uint64_t kChecksumBytes = 4;

/// Whether `stored` is the checksum of a block of metadata: Jenkins's lookup3 with initial value 0.
bool metadata_checksum_holds(std::span<const std::byte> block, std::uint32_t stored);

/// Whether `stored` is the fletcher32 checksum of a chunk, as HDF5 computes it: over big-endian 16-bit words.
bool chunk_checksum_holds(std::span<const std::byte> chunk, std::uint32_t stored);

/// Whether `stored` is the XXH3 hash of these bytes.
bool hash_holds(std::span<const std::byte> bytes, std::uint64_t seed, std::uint64_t stored);

}  // namespace megatron

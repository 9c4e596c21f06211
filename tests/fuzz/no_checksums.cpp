// Linked in place of src/data/hdf5/hdf5_checksum.cpp: every checksum is right, so that the changes a fuzzer makes to a
// good file reach the code after the checksums. An attacker can make them right as well.
#include "data/hdf5/hdf5_checksum.h"

namespace megatron {

bool metadata_checksum_holds(std::span<const std::byte>, std::uint32_t) {
  return true;
}

bool chunk_checksum_holds(std::span<const std::byte>, std::uint32_t) {
  return true;
}

bool hash_holds(std::span<const std::byte>, std::uint64_t, std::uint64_t) {
  return true;
}

}  // namespace megatron

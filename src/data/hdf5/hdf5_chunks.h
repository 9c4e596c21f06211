// Where the chunks of a dataset that grew are: the extensible array of HDF5 1.10. Private to the reader of this layer.
#pragma once

#include <cstdint>
#include <vector>

#include "data/hdf5/hdf5_metadata.h"

namespace megatron {

/// The addresses of the first `chunks` chunks, in order. Each is claimed, and must have `stored_bytes` bytes in the
/// file and all its filters.
std::vector<std::uint64_t> read_chunk_addresses(Hdf5Storage& storage, std::uint64_t array, std::uint64_t chunks,
                                                std::uint64_t stored_bytes);

}  // namespace megatron

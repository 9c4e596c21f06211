// The messages that each rank of an MPI communicator sends for a collective: what grows with the number of ranks, and
// how. For the meter and for tests; MpiEngine sends them, and a test compares.
#pragma once

#include <cstdint>

namespace megatron {

/// Whole tensors: ranks - 1, or over the tree at most log2(ranks) + 1. Others: 2·(ranks - 1) for each chunk.
std::int64_t messages_of_all_reduce(std::int64_t elements, std::int64_t element_bytes, int rank, int ranks);
/// ranks - 1 for each chunk.
std::int64_t messages_of_all_gather(std::int64_t part_elements, std::int64_t element_bytes, int ranks);
std::int64_t messages_of_reduce_scatter(std::int64_t part_elements, std::int64_t element_bytes, int ranks);
/// ranks - 1 where a part fits a chunk; else one more for each chunk that ends within a part.
std::int64_t messages_of_all_to_all(std::int64_t part_elements, std::int64_t element_bytes, int ranks);
/// At most log2(ranks) for each chunk.
std::int64_t messages_of_broadcast(std::int64_t elements, std::int64_t element_bytes, int root, int rank, int ranks);
/// 1 for each GiB.
std::int64_t messages_of_send(std::int64_t bytes);

}  // namespace megatron

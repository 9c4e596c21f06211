#include "distributed/comm/messages.h"

#include <numeric>

#include "distributed/comm/staging.h"

namespace megatron {

namespace {

std::int64_t chunks_of(std::int64_t elements, std::int64_t chunk_elements) {
  return (elements + chunk_elements - 1) / chunk_elements;
}

}  // namespace

std::int64_t messages_of_all_reduce(std::int64_t elements, std::int64_t element_bytes, int rank, int ranks) {
  const std::int64_t bytes = elements * element_bytes;
  if (goes_by_tree(bytes, ranks)) return tree_children(rank, ranks) + (rank > 0 ? 1 : 0);
  if (goes_whole(bytes, ranks)) return ranks - 1;
  return 2 * (ranks - 1) * chunks_of(elements, all_reduce_need(elements, element_bytes, ranks).chunk_elements);
}

std::int64_t messages_of_all_gather(std::int64_t part_elements, std::int64_t element_bytes, int ranks) {
  return (ranks - 1) * chunks_of(part_elements, gather_chunk_elements(element_bytes, ranks));
}

std::int64_t messages_of_reduce_scatter(std::int64_t part_elements, std::int64_t element_bytes, int ranks) {
  return (ranks - 1) *
         chunks_of(part_elements, reduce_scatter_need(part_elements, element_bytes, ranks).chunk_elements);
}

std::int64_t messages_of_all_to_all(std::int64_t part_elements, std::int64_t element_bytes, int ranks) {
  const std::int64_t chunk = all_to_all_chunk_elements(part_elements, element_bytes), parts = ranks - 1;
  const std::int64_t last = parts * part_elements - 1;
  return parts + last / chunk - last / std::lcm(chunk, part_elements);
}

std::int64_t messages_of_broadcast(std::int64_t elements, std::int64_t element_bytes, int root, int rank, int ranks) {
  return tree_children((rank + ranks - root) % ranks, ranks) * chunks_of(elements, kChunkBytes / element_bytes);
}

std::int64_t messages_of_send(std::int64_t bytes) {
  return chunks_of(bytes, kMessageBytes);
}

}  // namespace megatron

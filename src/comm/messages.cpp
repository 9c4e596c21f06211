#include "comm/messages.h"

#include <algorithm>

#include "comm/staging.h"

namespace megatron {

namespace {

std::int64_t pieces_of(std::int64_t elements, std::int64_t piece_elements) {
  return (elements + piece_elements - 1) / piece_elements;
}

}  // namespace

std::int64_t messages_of_all_reduce(std::int64_t elements, std::int64_t element_bytes, int rank, int ranks) {
  const std::int64_t bytes = elements * element_bytes;
  if (goes_by_tree(bytes, ranks)) return tree_children(rank, ranks) + (rank > 0 ? 1 : 0);
  if (goes_whole(bytes, ranks)) return ranks - 1;
  return 2 * (ranks - 1) * pieces_of(elements, all_reduce_need(elements, element_bytes, ranks).piece_elements);
}

std::int64_t messages_of_all_gather(std::int64_t part_elements, std::int64_t element_bytes, int ranks) {
  return (ranks - 1) * pieces_of(part_elements, gather_piece_elements(element_bytes, ranks));
}

std::int64_t messages_of_reduce_scatter(std::int64_t part_elements, std::int64_t element_bytes, int ranks) {
  return (ranks - 1) *
         pieces_of(part_elements, reduce_scatter_need(part_elements, element_bytes, ranks).piece_elements);
}

std::int64_t messages_of_broadcast(std::int64_t elements, std::int64_t element_bytes, int root, int rank, int ranks) {
  return tree_children((rank + ranks - root) % ranks, ranks) * pieces_of(elements, kPieceBytes / element_bytes);
}

std::int64_t messages_of_send(std::int64_t bytes) {
  return pieces_of(bytes, kMessageBytes);
}

}  // namespace megatron

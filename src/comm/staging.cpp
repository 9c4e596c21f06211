#include "comm/staging.h"

#include <algorithm>

#include "base/error.h"

namespace megatron {

namespace {

// `share`: the most elements of a piece that this rank adds up.
StagingNeed need(std::int64_t elements, std::int64_t piece_elements, std::int64_t share, std::int64_t element_bytes,
                 int ranks) {
  constexpr std::int64_t alignment = 64;
  const std::int64_t bytes = share * (ranks - 1) * element_bytes;
  return {.piece_elements = piece_elements,
          .piece_bytes = static_cast<std::size_t>((bytes + alignment - 1) / alignment * alignment),
          .pieces = elements > piece_elements ? kPiecesInFlight : 1};
}

}  // namespace

bool goes_whole(std::int64_t bytes, int ranks) {
  return bytes <= kWholeBytes && bytes * ranks <= kPieceBytes;
}

bool goes_by_tree(std::int64_t bytes, int ranks) {
  return goes_whole(bytes, ranks) && ranks > kDirectRanks;
}

int tree_children(int number, int ranks) {
  int children = 0;
  for (int bit = 1; bit < ranks && (number & bit) == 0 && number + bit < ranks; bit *= 2) ++children;
  return children;
}

StagingNeed all_reduce_need(std::int64_t elements, std::int64_t element_bytes, int ranks) {
  const std::int64_t bytes = elements * element_bytes;
  // The root of the tree holds everybody's, its own among them.
  if (goes_by_tree(bytes, ranks)) return need(elements, elements, elements, element_bytes, ranks + 1);
  if (goes_whole(bytes, ranks)) return need(elements, elements, elements, element_bytes, ranks);
  const std::int64_t piece = kPieceBytes / element_bytes, most = std::min(piece, elements);
  return need(elements, piece, (most + ranks - 1) / ranks, element_bytes, ranks);
}

std::size_t most_for_all_reduces(std::int64_t elements, std::int64_t element_bytes, int ranks) {
  const std::int64_t most_whole = std::min({elements * element_bytes, kWholeBytes, kPieceBytes / ranks});
  return std::max(all_reduce_need(elements, element_bytes, ranks).bytes(),
                  all_reduce_need(most_whole / element_bytes, element_bytes, ranks).bytes());
}

StagingNeed reduce_scatter_need(std::int64_t part_elements, std::int64_t element_bytes, int ranks) {
  const std::int64_t piece = std::max<std::int64_t>(1, kPieceBytes / element_bytes / ranks);
  return need(part_elements, piece, std::min(piece, part_elements), element_bytes, ranks);
}

std::int64_t gather_piece_elements(std::int64_t element_bytes, int ranks) {
  return std::max<std::int64_t>(1, kPieceBytes / element_bytes / ranks);
}

PinnedPieces pinned_pieces(std::int64_t elements, std::int64_t element_bytes, int parts) {
  const std::int64_t most = std::max<std::int64_t>(1, kPieceBytes / element_bytes / parts);
  const std::int64_t piece = std::min(most, elements);
  return {.elements = piece, .bytes = static_cast<std::size_t>(piece * element_bytes * parts)};
}

void Staging::resize(Lane& lane, std::size_t bytes) {
  if (lane.memory.bytes() == bytes) return;
  lane.memory = Buffer();  // given back first: old and new need not fit side by side
  lane.memory = Buffer(allocator_, bytes);
}

void Staging::reserve(const Lanes& plan) {
  lanes_.resize(static_cast<std::size_t>(plan.count));
  for (Lane& lane : lanes_) {
    internal_check(!lane.taken, "staging reserved while a reduction is in flight");
    resize(lane, plan.bytes_each);
  }
}

std::byte* Staging::take(std::size_t bytes) {
  auto lane = std::find_if(lanes_.begin(), lanes_.end(), [](const Lane& candidate) { return !candidate.taken; });
  if (lane == lanes_.end()) lane = lanes_.emplace(lanes_.end());
  if (lane->memory.bytes() < bytes) resize(*lane, bytes);
  lane->taken = true;
  return lane->memory.data();
}

void Staging::give_back(const std::byte* memory) {
  for (Lane& lane : lanes_) {
    if (lane.memory.data() == memory) lane.taken = false;
  }
}

std::size_t Staging::bytes() const {
  std::size_t sum = 0;
  for (const Lane& lane : lanes_) sum += lane.memory.bytes();
  return sum;
}

}  // namespace megatron

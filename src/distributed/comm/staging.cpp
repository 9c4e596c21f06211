#include "distributed/comm/staging.h"

#include <algorithm>

#include "base/core/error.h"

namespace megatron {

namespace {

// `share`: the most elements of a chunk that this rank adds up.
StagingNeed need(std::int64_t elements, std::int64_t chunk_elements, std::int64_t share, std::int64_t element_bytes,
                 int ranks) {
  constexpr std::int64_t alignment = 64;
  const std::int64_t bytes = share * (ranks - 1) * element_bytes;
  return {.chunk_elements = chunk_elements,
          .chunk_bytes = static_cast<std::size_t>((bytes + alignment - 1) / alignment * alignment),
          .chunks = elements > chunk_elements ? kChunksInFlight : 1};
}

}  // namespace

bool goes_whole(std::int64_t bytes, int ranks) {
  return bytes <= kWholeBytes && bytes * ranks <= kChunkBytes;
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
  // The root of the tree holds those of all ranks, its own among them.
  if (goes_by_tree(bytes, ranks)) return need(elements, elements, elements, element_bytes, ranks + 1);
  if (goes_whole(bytes, ranks)) return need(elements, elements, elements, element_bytes, ranks);
  const std::int64_t chunk = kChunkBytes / element_bytes, most = std::min(chunk, elements);
  return need(elements, chunk, (most + ranks - 1) / ranks, element_bytes, ranks);
}

std::size_t most_for_all_reduces(std::int64_t elements, std::int64_t element_bytes, int ranks) {
  const std::int64_t most_whole = std::min({elements * element_bytes, kWholeBytes, kChunkBytes / ranks});
  return std::max(all_reduce_need(elements, element_bytes, ranks).bytes(),
                  all_reduce_need(most_whole / element_bytes, element_bytes, ranks).bytes());
}

StagingNeed reduce_scatter_need(std::int64_t part_elements, std::int64_t element_bytes, int ranks) {
  const std::int64_t chunk = std::max<std::int64_t>(1, kChunkBytes / element_bytes / ranks);
  return need(part_elements, chunk, std::min(chunk, part_elements), element_bytes, ranks);
}

std::int64_t gather_chunk_elements(std::int64_t element_bytes, int ranks) {
  return std::max<std::int64_t>(1, kChunkBytes / element_bytes / ranks);
}

std::int64_t all_to_all_chunk_elements(std::int64_t part_elements, std::int64_t element_bytes) {
  const std::int64_t most = kChunkBytes / element_bytes;
  return part_elements > most ? most : std::min(most / part_elements, kPeersPerChunk) * part_elements;
}

PinnedChunks pinned_chunks(std::int64_t elements, std::int64_t element_bytes, int parts) {
  const std::int64_t most = std::max<std::int64_t>(1, kChunkBytes / element_bytes / parts);
  const std::int64_t chunk = std::min(most, elements);
  return {.elements = chunk, .bytes = static_cast<std::size_t>(chunk * element_bytes * parts)};
}

void Staging::resize(StagingBuffer& buffer, std::size_t bytes) {
  if (buffer.memory.bytes() == bytes) return;
  buffer.memory = Buffer();  // given back first: old and new need not fit side by side
  buffer.memory = Buffer(allocator_, bytes);
}

void Staging::reserve(const StagingBuffers& plan) {
  buffers_.resize(static_cast<std::size_t>(plan.count));
  for (StagingBuffer& buffer : buffers_) {
    internal_check(!buffer.taken, "staging reserved while a reduction is in flight");
    resize(buffer, plan.bytes_each);
  }
}

std::byte* Staging::take(std::size_t bytes) {
  auto buffer =
      std::find_if(buffers_.begin(), buffers_.end(), [](const StagingBuffer& candidate) { return !candidate.taken; });
  if (buffer == buffers_.end()) buffer = buffers_.emplace(buffers_.end());
  if (buffer->memory.bytes() < bytes) resize(*buffer, bytes);
  buffer->taken = true;
  return buffer->memory.data();
}

void Staging::give_back(const std::byte* memory) {
  for (StagingBuffer& buffer : buffers_) {
    if (buffer.memory.data() == memory) buffer.taken = false;
  }
}

std::size_t Staging::bytes() const {
  std::size_t sum = 0;
  for (const StagingBuffer& buffer : buffers_) sum += buffer.memory.bytes();
  return sum;
}

}  // namespace megatron

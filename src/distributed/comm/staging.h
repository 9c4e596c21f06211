// Staging: where a rank's reductions hold what the others sent until it is added up, in rank order. It is all the
// memory that collectives take in addition to their tensors (MPI's own apart), and its size follows from those
// tensors: the engine takes what all_reduce_need() and reduce_scatter_need() say, and planning asks the same ones.
// Tensors of a device that go through a host communicator (distributed/parallel/staged_communicator.h) have buffers of
// pinned memory in addition: two of one size for each of a group's pipes. Knows sizes, neither MPI nor devices.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "backend/tensor/memory.h"

namespace megatron {

/// All-reduces of at most this many bytes are not cut up, where all ranks' fit a chunk: up to kDirectRanks ranks send
/// them to all ranks, more of them up a binomial tree to rank 0, which adds, and down again.
inline constexpr std::int64_t kWholeBytes = 16 << 10;
inline constexpr int kDirectRanks = 8;
inline constexpr std::int64_t kChunkBytes = 4 << 20;
inline constexpr std::int64_t kMessageBytes = 1 << 30;  ///< the most in one message: MPI counts are ints
inline constexpr int kChunksInFlight = 2, kCollectivesInFlight = 2;
inline constexpr std::int64_t kPeersPerChunk = 32;  ///< the most that one chunk of an all-to-all is for

/// Whether an all-reduce of this size travels whole.
bool goes_whole(std::int64_t bytes, int ranks);
/// Whether one that does goes over the tree: 2·log2(ranks) steps, and no rank sends more than log2(ranks) + 1 messages.
bool goes_by_tree(std::int64_t bytes, int ranks);
/// Children of a rank in the binomial tree of `ranks` ranks whose root is 0: number + 1, + 2, + 4, ...
int tree_children(int number, int ranks);

/// Memory that one reduction holds on each rank.
struct StagingNeed {
  std::int64_t chunk_elements = 0;  ///< in the tensor; for a reduce-scatter, in a rank's part
  std::size_t chunk_bytes = 0;      ///< held of the others' shares for each chunk; a multiple of 64
  int chunks = 1;                   ///< in flight at a time
  std::size_t bytes() const { return chunk_bytes * static_cast<std::size_t>(chunks); }
};
StagingNeed all_reduce_need(std::int64_t elements, std::int64_t element_bytes, int ranks);
/// The most that all-reduces of at most this number of elements hold: what goes whole needs more than what is little
/// larger.
std::size_t most_for_all_reduces(std::int64_t elements, std::int64_t element_bytes, int ranks);
StagingNeed reduce_scatter_need(std::int64_t part_elements, std::int64_t element_bytes, int ranks);

/// Elements of each rank's part in a chunk of an all-gather.
std::int64_t gather_chunk_elements(std::int64_t element_bytes, int ranks);

/// Elements of a chunk of an all-to-all, whose parts are sent one after the other: parts as a whole, or cut.
std::int64_t all_to_all_chunk_elements(std::int64_t part_elements, std::int64_t element_bytes);

/// How a device's tensor goes through pinned memory: `parts` ranks' parts of `elements` each lie side by side in it
/// (gathers and scatters; of all-to-alls those to send and those to receive), or it is one.
struct PinnedChunks {
  std::int64_t elements = 0;  ///< in a chunk; in each part where there are parts
  std::size_t bytes = 0;      ///< a buffer's
};
PinnedChunks pinned_chunks(std::int64_t elements, std::int64_t element_bytes, int parts);

/// Buffers of one size.
struct StagingBuffers {
  int count = 0;
  std::size_t bytes_each = 0;
  std::size_t bytes() const { return bytes_each * static_cast<std::size_t>(count); }
};

/// Buffers that a group needs in a step.
struct StagingPlan {
  StagingBuffers reductions, pinned;
  std::size_t bytes() const { return reductions.bytes() + pinned.bytes(); }
};

/// The buffers of one group, in the allocator's memory. What was not reserved is allocated when it is first taken, and
/// kept. A reduction goes in chunks, of which two are in flight; a group has at most two collectives in flight. So it
/// has two buffers at most, each as large as its largest reduction needs.
class Staging {
 public:
  /// The allocator must outlive the staging.
  explicit Staging(Allocator& allocator = host_memory()) : allocator_(allocator) {}
  /// Makes bytes() what the plan says, so that nothing is allocated later. Between operations.
  void reserve(const StagingBuffers& plan);
  std::byte* take(std::size_t bytes);
  void give_back(const std::byte* buffer);
  std::size_t bytes() const;  ///< held

 private:
  struct StagingBuffer {
    Buffer memory;
    bool taken = false;
  };
  void resize(StagingBuffer& buffer, std::size_t bytes);

  Allocator& allocator_;
  std::vector<StagingBuffer> buffers_;
};

}  // namespace megatron

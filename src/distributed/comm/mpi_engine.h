// The engine under the MPI communicators: operations as small state machines of nonblocking sends and receives.
//
// Waiting for one operation advances all that are in flight, so ranks may wait in different orders and one operation's
// transfers overlap another's. Every reduction is computed once, in rank order, by the rank that owns the slice.
// Operations, request lists and staging are reused: nothing is allocated in steady state. One engine per process, used
// by one thread at a time.
#pragma once

#include <array>
#include <cstddef>
#include <memory>
#include <vector>

#include "distributed/comm/communicator.h"
#include "distributed/comm/mpi_check.h"
#include "distributed/comm/staging.h"

namespace megatron {

/// Its tensor is cut into chunks that fit the cache; two chunks are in flight at a time, each going through its phases
/// (exchange slices, reduce, gather, ...).
struct MpiOperation {
  enum class Kind {
    all_reduce,         // in chunks: slices to their owners, sums back
    all_reduce_direct,  // whole, to all ranks
    all_reduce_tree,    // whole, to rank 0 and back
    all_gather,
    reduce_scatter,
    broadcast,
    all_to_all,
    send,
    receive,
    barrier
  };

  struct MessageChunk {
    bool active = false;
    int phase = 0;
    std::int64_t first = 0, count = 0;  // elements of the tensor, or of the part where there is one
    std::vector<MPI_Request> requests;
    std::vector<int> expected;  // bytes of each receive, -1 for sends
    std::vector<MPI_Status> statuses;
  };

  // Set by the communicator.
  Kind kind = Kind::barrier;
  MPI_Comm comm = MPI_COMM_NULL;
  const char* group = "";
  int rank = 0, size = 1;
  int tag = 0;   // point to point: the message's; collectives: the first of four
  int peer = 0;  // root, to or from
  Reduce reduce = Reduce::sum;
  DType dtype = DType::u8;
  const std::byte* input = nullptr;
  std::byte* output = nullptr;
  std::int64_t elements = 0;   // in the tensor, or in the part where one is given
  Staging* staging = nullptr;  // the group's
  std::int64_t element_bytes() const { return static_cast<std::int64_t>(size_of(dtype)); }

  // The engine's.
  std::int64_t chunk_elements = 0;
  bool begun = false, done = false;
  StagingNeed need;             // reductions have one
  std::byte* buffer = nullptr;  // while it runs
  std::array<MessageChunk, kChunksInFlight>
      chunks;  // the first takes the even chunks, the second the odd ones: their tags differ
};

const char* name_of(MpiOperation::Kind kind);

/// At most two collectives of a group run at a time, in the order they were started; more would only ask for more
/// staging (staging.h).
class MpiEngine {
 public:
  /// An operation to fill in and start(). The engine owns it.
  MpiOperation& create();
  /// Posts what can be posted at once.
  void start(MpiOperation& operation);
  /// Advances everything in flight as far as it goes without waiting; true if anything moved.
  bool progress();
  /// Returns when it is complete, and takes it back. Throws Error(communication).
  void finish(MpiOperation& operation);
  /// Messages that this rank has sent so far, in all groups; MPI's own (barriers, splits) are not known.
  std::int64_t messages_sent() const { return messages_sent_; }
  /// After an exception on this rank: no more communication, the job is about to be aborted.
  void give_up() noexcept { broken_ = true; }

 private:
  using MessageChunk = MpiOperation::MessageChunk;

  bool may_begin(const MpiOperation& operation) const;
  bool advance(MpiOperation& operation);
  void begin_chunk(MpiOperation& operation, MessageChunk& chunk, std::int64_t first);
  bool complete(const MpiOperation& operation, MessageChunk& chunk);
  void send(const MpiOperation& operation, MessageChunk& chunk, int to, const std::byte* data, std::int64_t bytes);
  void receive(const MpiOperation& operation, MessageChunk& chunk, int from, std::byte* data, std::int64_t bytes);
  // In mpi_phases.cpp:
  bool post_phase(MpiOperation& operation, MessageChunk& chunk);
  void exchange_slices(const MpiOperation& operation, MessageChunk& chunk);
  void reduce_slice(const MpiOperation& operation, MessageChunk& chunk);
  void copy_own_part(const MpiOperation& operation, const MessageChunk& chunk);
  void gather_slices(const MpiOperation& operation, MessageChunk& chunk);
  void exchange_parts(const MpiOperation& operation, MessageChunk& chunk);
  bool tree_phase(const MpiOperation& operation, MessageChunk& chunk);
  bool broadcast_phase(const MpiOperation& operation, MessageChunk& chunk);

  bool broken_ = false;
  std::int64_t messages_sent_ = 0;
  std::vector<std::unique_ptr<MpiOperation>> active_, idle_;
  std::vector<const void*> sources_;
};

}  // namespace megatron

#include "comm/mpi_engine.h"

#include <algorithm>
#include <cstring>

#include "comm/ordered_reduction.h"
#include "comm/poll_backoff.h"

namespace megatron {

namespace {

using Kind = MpiOperation::Kind;
using MessageChunk = MpiOperation::MessageChunk;

// Where rank k's share of a chunk lies in the tensor (all-reduce: cut into as many slices as there are ranks) or in the
// whole (gather and scatter: the same range of each rank's part). In elements.
struct Slice {
  std::int64_t first, count;
};

Slice slice_of(const MpiOperation& operation, const MessageChunk& chunk, int k) {
  if (operation.kind != Kind::all_reduce) return {k * operation.elements + chunk.first, chunk.count};
  const std::int64_t begin = chunk.count * k / operation.size, end = chunk.count * (k + 1) / operation.size;
  return {chunk.first + begin, end - begin};
}

std::int64_t element_bytes(const MpiOperation& operation) {
  return static_cast<std::int64_t>(size_of(operation.dtype));
}

// Where in the operation's buffer what `from` sent for this chunk lies, if all send `bytes` and this rank nothing.
std::byte* staged(const MpiOperation& operation, const MessageChunk& chunk, int from, std::int64_t bytes) {
  const auto number = static_cast<std::size_t>(&chunk - operation.chunks.data());
  return operation.buffer + number * operation.need.chunk_bytes + (from < operation.rank ? from : from - 1) * bytes;
}

bool reduces(const MpiOperation& operation) {
  return operation.kind == Kind::all_reduce || operation.kind == Kind::all_reduce_direct ||
         operation.kind == Kind::all_reduce_tree || operation.kind == Kind::reduce_scatter;
}

// Collectives that move tensors.
bool waits_its_turn(const MpiOperation& operation) {
  return reduces(operation) || operation.kind == Kind::all_gather || operation.kind == Kind::broadcast;
}

}  // namespace

const char* name_of(MpiOperation::Kind kind) {
  switch (kind) {
    case Kind::all_reduce:
    case Kind::all_reduce_direct:
    case Kind::all_reduce_tree: return "all-reduce";
    case Kind::all_gather: return "all-gather";
    case Kind::reduce_scatter: return "reduce-scatter";
    case Kind::broadcast: return "broadcast";
    case Kind::send: return "send";
    case Kind::receive: return "receive";
    case Kind::barrier: return "barrier";
  }
  return "?";
}

MpiOperation& MpiEngine::create() {
  verify(!broken_, ErrorKind::communication, "communication after a failure on this rank");
  if (idle_.empty()) {
    active_.push_back(std::make_unique<MpiOperation>());
  } else {
    active_.push_back(std::move(idle_.back()));
    idle_.pop_back();
  }
  return *active_.back();
}

void MpiEngine::start(MpiOperation& operation) {
  operation.begun = operation.done = false;
  const std::int64_t width = element_bytes(operation), per_chunk = kChunkBytes / width;
  switch (operation.kind) {
    case Kind::all_reduce:
    case Kind::all_reduce_direct:
    case Kind::all_reduce_tree: operation.need = all_reduce_need(operation.elements, width, operation.size); break;
    case Kind::reduce_scatter: operation.need = reduce_scatter_need(operation.elements, width, operation.size); break;
    case Kind::broadcast: operation.chunk_elements = per_chunk; break;
    case Kind::all_gather: operation.chunk_elements = gather_chunk_elements(width, operation.size); break;
    default: operation.chunk_elements = operation.elements; break;
  }
  if (reduces(operation)) operation.chunk_elements = operation.need.chunk_elements;
  advance(operation);
}

// Messages and barriers at once, other collectives after at most one of their group. The order of starts
// is the same on all ranks of the group, so its oldest operation runs everywhere and ranks do not wait in a circle.
bool MpiEngine::may_begin(const MpiOperation& operation) const {
  if (!waits_its_turn(operation)) return true;
  int ahead = 0;
  for (const auto& other : active_) {
    if (other.get() == &operation) break;
    if (other->comm != operation.comm || !waits_its_turn(*other) || other->done) continue;
    if (++ahead == kCollectivesInFlight) return false;
  }
  return true;
}

bool MpiEngine::progress() {
  verify(!broken_, ErrorKind::communication, "communication after a failure on this rank");
  bool moved = false;
  for (const auto& operation : active_) moved = advance(*operation) || moved;
  return moved;
}

void MpiEngine::finish(MpiOperation& operation) {
  PollBackoff backoff;
  while (!operation.done) {
    if (progress()) {
      backoff.moved();
    } else if (!operation.done) {
      backoff.rest();
    }
  }
  const auto at =
      std::find_if(active_.begin(), active_.end(), [&](const auto& other) { return other.get() == &operation; });
  internal_check(at != active_.end(), "an operation is waited for twice");
  idle_.push_back(std::move(*at));
  active_.erase(at);  // keeps the order: ranks advance older operations first
}

// Takes every chunk as far as it can go without waiting; true if anything moved.
bool MpiEngine::advance(MpiOperation& operation) {
  if (operation.done) return false;
  bool progress = false, busy = false;
  if (!operation.begun) {
    if (!may_begin(operation)) return false;
    operation.begun = progress = true;
    if (reduces(operation)) operation.buffer = operation.staging->take(operation.need.bytes());
    begin_chunk(operation, operation.chunks[0], 0);
    begin_chunk(operation, operation.chunks[1], operation.chunk_elements);
  }
  for (MessageChunk& chunk : operation.chunks) {
    while (chunk.active && complete(operation, chunk)) {
      progress = true;
      ++chunk.phase;
      if (post_phase(operation, chunk)) continue;
      chunk.active = false;
      begin_chunk(operation, chunk, chunk.first + 2 * operation.chunk_elements);
    }
    busy = busy || chunk.active;
  }
  operation.done = !busy;
  if (operation.done && operation.buffer != nullptr) {
    operation.staging->give_back(operation.buffer);
    operation.buffer = nullptr;
  }
  return progress;
}

void MpiEngine::begin_chunk(MpiOperation& operation, MessageChunk& chunk, std::int64_t first) {
  chunk.active = first < operation.elements;
  if (!chunk.active) return;
  chunk.phase = 0;
  chunk.first = first;
  chunk.count = std::min(operation.chunk_elements, operation.elements - first);
  post_phase(operation, chunk);
}

// Posts the messages of the chunk's phase; false if there is no such phase any more.
bool MpiEngine::post_phase(MpiOperation& operation, MessageChunk& chunk) {
  switch (operation.kind) {
    case Kind::all_reduce:
      if (chunk.phase == 0) exchange_slices(operation, chunk);
      if (chunk.phase == 1) {
        reduce_slice(operation, chunk);
        gather_slices(operation, chunk);
      }
      return chunk.phase < 2;
    case Kind::all_reduce_tree: return tree_phase(operation, chunk);
    case Kind::all_reduce_direct:
    case Kind::reduce_scatter:
      if (chunk.phase == 0) exchange_slices(operation, chunk);
      if (chunk.phase == 1) reduce_slice(operation, chunk);
      return chunk.phase < 1;
    case Kind::all_gather:
      if (chunk.phase == 0) {
        copy_own_part(operation, chunk);
        gather_slices(operation, chunk);
      }
      return chunk.phase < 1;
    case Kind::broadcast: return broadcast_phase(operation, chunk);
    case Kind::send:
    case Kind::receive: {
      if (chunk.phase > 0) return false;
      const std::int64_t bytes = operation.elements * element_bytes(operation);
      if (operation.kind == Kind::send) send(operation, chunk, operation.peer, operation.input, bytes);
      if (operation.kind == Kind::receive) receive(operation, chunk, operation.peer, operation.output, bytes);
      return true;
    }
    case Kind::barrier:
      if (chunk.phase > 0) return false;
      chunk.requests.push_back(MPI_REQUEST_NULL);
      chunk.expected.push_back(-1);
      MPI_CHECK(MPI_Ibarrier(operation.comm, &chunk.requests.back()));
      return true;
  }
  return false;
}

// Every rank sends each other its slice (small tensors: the whole) and receives its own from all into its buffer.
void MpiEngine::exchange_slices(const MpiOperation& operation, MessageChunk& chunk) {
  const bool whole = operation.kind == Kind::all_reduce_direct;
  const std::int64_t width = element_bytes(operation);
  const Slice everything{chunk.first, chunk.count};
  const std::int64_t own_bytes = (whole ? everything : slice_of(operation, chunk, operation.rank)).count * width;
  internal_check(static_cast<std::size_t>(own_bytes * (operation.size - 1)) <= operation.need.chunk_bytes,
                 "a chunk larger than its staging");
  for (int step = 1; step < operation.size; ++step) {
    const int from = (operation.rank + operation.size - step) % operation.size;
    receive(operation, chunk, from, staged(operation, chunk, from, own_bytes), own_bytes);
  }
  for (int step = 1; step < operation.size; ++step) {
    const int to = (operation.rank + step) % operation.size;
    const Slice slice = whole ? everything : slice_of(operation, chunk, to);
    send(operation, chunk, to, operation.input + slice.first * width, slice.count * width);
  }
}

// Combines what exchange_slices() brought with this rank's own, in rank order, into the output.
void MpiEngine::reduce_slice(const MpiOperation& operation, MessageChunk& chunk) {
  const std::int64_t width = element_bytes(operation);
  const bool whole = operation.kind == Kind::all_reduce_direct;
  const Slice own = whole ? Slice{chunk.first, chunk.count} : slice_of(operation, chunk, operation.rank);
  sources_.clear();
  for (int from = 0; from < operation.size; ++from) {
    sources_.push_back(from == operation.rank ? operation.input + own.first * width
                                              : staged(operation, chunk, from, own.count * width));
  }
  const std::int64_t target = operation.kind == Kind::reduce_scatter ? chunk.first : own.first;
  reduce_in_rank_order(operation.dtype, operation.reduce, sources_, operation.output + target * width, own.count);
}

// All-gather: this rank's part into its place in the whole, unless it is there already.
void MpiEngine::copy_own_part(const MpiOperation& operation, const MessageChunk& chunk) {
  const std::int64_t width = element_bytes(operation);
  const std::byte* from = operation.input + chunk.first * width;
  std::byte* to = operation.output + slice_of(operation, chunk, operation.rank).first * width;
  if (from != to) std::memcpy(to, from, static_cast<std::size_t>(chunk.count * width));
}

// Every rank sends its slice of the output to all and receives theirs.
void MpiEngine::gather_slices(const MpiOperation& operation, MessageChunk& chunk) {
  const std::int64_t width = element_bytes(operation);
  const Slice own = slice_of(operation, chunk, operation.rank);
  for (int step = 1; step < operation.size; ++step) {
    const int from = (operation.rank + operation.size - step) % operation.size;
    const Slice slice = slice_of(operation, chunk, from);
    receive(operation, chunk, from, operation.output + slice.first * width, slice.count * width);
  }
  for (int step = 1; step < operation.size; ++step) {
    const int to = (operation.rank + step) % operation.size;
    send(operation, chunk, to, operation.output + own.first * width, own.count * width);
  }
}

// Up a binomial tree to rank 0, which adds them in rank order, and down again. A rank's buffer holds its own and
// those of the ranks below it, which are the next ones by number: one message to its parent.
bool MpiEngine::tree_phase(const MpiOperation& operation, MessageChunk& chunk) {
  const std::int64_t bytes = chunk.count * element_bytes(operation);
  const int rank = operation.rank, size = operation.size;
  const int children = tree_children(rank, size), parent = rank & (rank - 1);
  if (chunk.phase == 0) {
    std::memcpy(operation.buffer, operation.input, static_cast<std::size_t>(bytes));
    for (int child = 0; child < children; ++child) {
      const int below = 1 << child, ranks = std::min(below, size - rank - below);
      receive(operation, chunk, rank + below, operation.buffer + below * bytes, ranks * bytes);
    }
  }
  if (chunk.phase == 1 && rank != 0) {
    const int below = rank & -rank, ranks = std::min(below, size - rank);
    receive(operation, chunk, parent, operation.output, bytes);
    send(operation, chunk, parent, operation.buffer, ranks * bytes);
  }
  if (chunk.phase == 2) {
    if (rank == 0) {
      sources_.clear();
      for (int from = 0; from < size; ++from) sources_.push_back(operation.buffer + from * bytes);
      reduce_in_rank_order(operation.dtype, operation.reduce, sources_, operation.output, chunk.count);
    }
    for (int child = 0; child < children; ++child) {
      send(operation, chunk, rank + (1 << child), operation.output, bytes);
    }
  }
  return chunk.phase < 3;
}

// Down a binomial tree rooted at peer: a rank's parent is its number (counted from the root) without the lowest set
// bit.
bool MpiEngine::broadcast_phase(const MpiOperation& operation, MessageChunk& chunk) {
  const std::int64_t width = element_bytes(operation);
  std::byte* data = operation.output + chunk.first * width;
  const int number = (operation.rank + operation.size - operation.peer) % operation.size;
  const auto rank_of_number = [&](int n) { return (n + operation.peer) % operation.size; };
  if (chunk.phase == 0 && number != 0) {
    receive(operation, chunk, rank_of_number(number & (number - 1)), data, chunk.count * width);
  }
  if (chunk.phase == 1) {
    for (int child = 0; child < tree_children(number, operation.size); ++child) {
      send(operation, chunk, rank_of_number(number + (1 << child)), data, chunk.count * width);
    }
  }
  return chunk.phase < 2;
}

namespace {

int tag_of(const MpiOperation& operation, const MessageChunk& chunk) {
  if (operation.kind == Kind::send || operation.kind == Kind::receive) return operation.tag;
  // Messages of different chunks and phases may be posted in another order on the other side: they must not mix.
  // (On the edge of a tree they cannot: one goes up, one down. A parent's phase is not its child's.)
  const bool tree = operation.kind == Kind::broadcast || operation.kind == Kind::all_reduce_tree;
  const int phase = tree ? 0 : chunk.phase;
  return operation.tag + static_cast<int>(&chunk - operation.chunks.data()) * 2 + phase;
}

}  // namespace

void MpiEngine::send(const MpiOperation& operation, MessageChunk& chunk, int to, const std::byte* data,
                     std::int64_t bytes) {
  for (std::int64_t done = 0; done < bytes; done += kMessageBytes) {
    const int count = static_cast<int>(std::min(kMessageBytes, bytes - done));
    chunk.requests.push_back(MPI_REQUEST_NULL);
    chunk.expected.push_back(-1);
    ++messages_sent_;
    MPI_CHECK(
        MPI_Isend(data + done, count, MPI_BYTE, to, tag_of(operation, chunk), operation.comm, &chunk.requests.back()));
  }
}

void MpiEngine::receive(const MpiOperation& operation, MessageChunk& chunk, int from, std::byte* data,
                        std::int64_t bytes) {
  for (std::int64_t done = 0; done < bytes; done += kMessageBytes) {
    const int count = static_cast<int>(std::min(kMessageBytes, bytes - done));
    chunk.requests.push_back(MPI_REQUEST_NULL);
    chunk.expected.push_back(count);
    MPI_CHECK(MPI_Irecv(data + done, count, MPI_BYTE, from, tag_of(operation, chunk), operation.comm,
                        &chunk.requests.back()));
  }
}

// True when all of the chunk's messages are through; checks that they had the size that was asked for.
bool MpiEngine::complete(const MpiOperation& operation, MessageChunk& chunk) {
  if (chunk.requests.empty()) return true;
  chunk.statuses.resize(chunk.requests.size());
  int done = 0;
  const int code =
      MPI_Testall(static_cast<int>(chunk.requests.size()), chunk.requests.data(), &done, chunk.statuses.data());
  if (code == MPI_ERR_IN_STATUS) {
    for (const MPI_Status& status : chunk.statuses) {
      if (status.MPI_ERROR != MPI_ERR_PENDING) {
        check_mpi(status.MPI_ERROR, fmt::format("{} in group '{}', rank {} of {}", name_of(operation.kind),
                                                operation.group, operation.rank, operation.size)
                                        .c_str());
      }
    }
  }
  MPI_CHECK(code);
  if (done == 0) return false;
  for (std::size_t i = 0; i < chunk.requests.size(); ++i) {
    if (chunk.expected[i] < 0) continue;
    int received = 0;
    MPI_CHECK(MPI_Get_count(&chunk.statuses[i], MPI_BYTE, &received));
    verify(received == chunk.expected[i], ErrorKind::communication,
           "{} in group '{}', rank {} of {}: rank {} sent {} bytes where {} were expected", name_of(operation.kind),
           operation.group, operation.rank, operation.size, chunk.statuses[i].MPI_SOURCE, received, chunk.expected[i]);
  }
  chunk.requests.clear();
  chunk.expected.clear();
  return true;
}

}  // namespace megatron

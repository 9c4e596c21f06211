// Phases of a chunk: what the engine's operations send, receive and compute in each.
#include <algorithm>
#include <cstring>

#include "distributed/comm/mpi_engine.h"
#include "distributed/comm/ordered_reduction.h"

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

// Where in the operation's buffer what `from` sent for this chunk lies, if all send `bytes` and this rank nothing.
std::byte* staged(const MpiOperation& operation, const MessageChunk& chunk, int from, std::int64_t bytes) {
  const auto number = static_cast<std::size_t>(&chunk - operation.chunks.data());
  return operation.buffer + number * operation.need.chunk_bytes + (from < operation.rank ? from : from - 1) * bytes;
}

}  // namespace

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
    case Kind::all_to_all:
      if (chunk.phase == 0) exchange_parts(operation, chunk);
      return chunk.phase < 1;
    case Kind::broadcast: return broadcast_phase(operation, chunk);
    case Kind::send:
    case Kind::receive: {
      if (chunk.phase > 0) return false;
      const std::int64_t bytes = operation.elements * operation.element_bytes();
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
  const std::int64_t width = operation.element_bytes();
  const Slice everything{chunk.first, chunk.count};
  const std::int64_t own_bytes = (whole ? everything : slice_of(operation, chunk, operation.rank)).count * width;
  internal_check(static_cast<std::size_t>(own_bytes * (operation.size - 1)) <= operation.need.chunk_bytes,
                 "a chunk larger than its staging", own_bytes * (operation.size - 1), operation.need.chunk_bytes);
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
  const std::int64_t width = operation.element_bytes();
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
  const std::int64_t width = operation.element_bytes();
  const std::byte* from = operation.input + chunk.first * width;
  std::byte* to = operation.output + slice_of(operation, chunk, operation.rank).first * width;
  if (from != to) std::memcpy(to, from, static_cast<std::size_t>(chunk.count * width));
}

// Every rank sends its slice of the output to all and receives theirs.
void MpiEngine::gather_slices(const MpiOperation& operation, MessageChunk& chunk) {
  const std::int64_t width = operation.element_bytes();
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

// All-to-all goes in steps: in step i a rank sends to rank + i and receives from rank - i, so that each of them has one
// sender and one receiver at a time; last comes its own part. Chunks cut the line of the parts in the order of steps:
// that is the same line on all ranks, and only what is in a chunk is in flight.
void MpiEngine::exchange_parts(const MpiOperation& operation, MessageChunk& chunk) {
  const std::int64_t width = operation.element_bytes(), part = operation.elements / operation.size;
  const std::int64_t end = chunk.first + chunk.count;
  const auto for_each_piece = [&](auto&& act) {  // act(step, first element of its part, elements)
    for (std::int64_t first = chunk.first; first < end;) {
      const std::int64_t next = std::min(end, (first / part + 1) * part);
      act(static_cast<int>(first / part) + 1, first % part, next - first);
      first = next;
    }
  };
  for_each_piece([&](int step, std::int64_t first, std::int64_t count) {
    const int from = (operation.rank + operation.size - step) % operation.size;
    if (from == operation.rank) return;
    receive(operation, chunk, from, operation.output + (from * part + first) * width, count * width);
  });
  for_each_piece([&](int step, std::int64_t first, std::int64_t count) {
    const int to = (operation.rank + step) % operation.size;
    const std::int64_t offset = (to * part + first) * width, bytes = count * width;
    if (to == operation.rank) {
      std::memcpy(operation.output + offset, operation.input + offset, static_cast<std::size_t>(bytes));
    } else {
      send(operation, chunk, to, operation.input + offset, bytes);
    }
  });
}

// Up a binomial tree to rank 0, which adds them in rank order, and down again. A rank's buffer holds its own and
// those of the ranks below it, which are the next ones by number: one message to its parent.
bool MpiEngine::tree_phase(const MpiOperation& operation, MessageChunk& chunk) {
  const std::int64_t bytes = chunk.count * operation.element_bytes();
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
  const std::int64_t width = operation.element_bytes();
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

}  // namespace megatron

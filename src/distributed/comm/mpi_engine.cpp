#include "distributed/comm/mpi_engine.h"

#include <algorithm>

#include "distributed/comm/poll_backoff.h"

namespace megatron {

namespace {

using Kind = MpiOperation::Kind;
using MessageChunk = MpiOperation::MessageChunk;

bool reduces(const MpiOperation& operation) {
  return operation.kind == Kind::all_reduce || operation.kind == Kind::all_reduce_direct ||
         operation.kind == Kind::all_reduce_tree || operation.kind == Kind::reduce_scatter;
}

// Collectives that move tensors.
bool waits_its_turn(const MpiOperation& operation) {
  return reduces(operation) || operation.kind == Kind::all_gather || operation.kind == Kind::broadcast ||
         operation.kind == Kind::all_to_all;
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
    case Kind::all_to_all: return "all-to-all";
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
  const std::int64_t width = operation.element_bytes(), per_chunk = kChunkBytes / width;
  switch (operation.kind) {
    case Kind::all_reduce:
    case Kind::all_reduce_direct:
    case Kind::all_reduce_tree: operation.need = all_reduce_need(operation.elements, width, operation.size); break;
    case Kind::reduce_scatter: operation.need = reduce_scatter_need(operation.elements, width, operation.size); break;
    case Kind::broadcast: operation.chunk_elements = per_chunk; break;
    case Kind::all_gather: operation.chunk_elements = gather_chunk_elements(width, operation.size); break;
    case Kind::all_to_all:
      operation.chunk_elements = all_to_all_chunk_elements(operation.elements / operation.size, width);
      break;
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

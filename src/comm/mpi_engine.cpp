#include "comm/mpi_engine.h"

#include <algorithm>
#include <cstring>

#include "comm/ordered_reduction.h"
#include "comm/poll_backoff.h"

namespace megatron {

namespace {

using Kind = MpiOperation::Kind;
using Piece = MpiOperation::Piece;

// Where rank k's share of a piece lies in the tensor (all-reduce: cut into as many slices as there are ranks) or in the
// whole (gather and scatter: the same range of each rank's part). In elements.
struct Slice {
  std::int64_t first, count;
};

Slice slice_of(const MpiOperation& operation, const Piece& piece, int k) {
  if (operation.kind != Kind::all_reduce) return {k * operation.elements + piece.first, piece.count};
  const std::int64_t begin = piece.count * k / operation.size, end = piece.count * (k + 1) / operation.size;
  return {piece.first + begin, end - begin};
}

std::int64_t element_bytes(const MpiOperation& operation) {
  return static_cast<std::int64_t>(size_of(operation.dtype));
}

// Where in the operation's lane what `from` sent for this piece lies, if all send `bytes` and this rank nothing.
std::byte* staged(const MpiOperation& operation, const Piece& piece, int from, std::int64_t bytes) {
  const auto number = static_cast<std::size_t>(&piece - operation.pieces.data());
  return operation.lane + number * operation.need.piece_bytes + (from < operation.rank ? from : from - 1) * bytes;
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
  const std::int64_t width = element_bytes(operation), per_piece = kPieceBytes / width;
  switch (operation.kind) {
    case Kind::all_reduce:
    case Kind::all_reduce_direct:
    case Kind::all_reduce_tree: operation.need = all_reduce_need(operation.elements, width, operation.size); break;
    case Kind::reduce_scatter: operation.need = reduce_scatter_need(operation.elements, width, operation.size); break;
    case Kind::broadcast: operation.piece_elements = per_piece; break;
    case Kind::all_gather: operation.piece_elements = gather_piece_elements(width, operation.size); break;
    default: operation.piece_elements = operation.elements; break;
  }
  if (reduces(operation)) operation.piece_elements = operation.need.piece_elements;
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

// Takes every piece as far as it can go without waiting; true if anything moved.
bool MpiEngine::advance(MpiOperation& operation) {
  if (operation.done) return false;
  bool progress = false, busy = false;
  if (!operation.begun) {
    if (!may_begin(operation)) return false;
    operation.begun = progress = true;
    if (reduces(operation)) operation.lane = operation.staging->take(operation.need.bytes());
    begin_piece(operation, operation.pieces[0], 0);
    begin_piece(operation, operation.pieces[1], operation.piece_elements);
  }
  for (Piece& piece : operation.pieces) {
    while (piece.active && complete(operation, piece)) {
      progress = true;
      ++piece.phase;
      if (post_phase(operation, piece)) continue;
      piece.active = false;
      begin_piece(operation, piece, piece.first + 2 * operation.piece_elements);
    }
    busy = busy || piece.active;
  }
  operation.done = !busy;
  if (operation.done && operation.lane != nullptr) {
    operation.staging->give_back(operation.lane);
    operation.lane = nullptr;
  }
  return progress;
}

void MpiEngine::begin_piece(MpiOperation& operation, Piece& piece, std::int64_t first) {
  piece.active = first < operation.elements;
  if (!piece.active) return;
  piece.phase = 0;
  piece.first = first;
  piece.count = std::min(operation.piece_elements, operation.elements - first);
  post_phase(operation, piece);
}

// Posts the messages of the piece's phase; false if there is no such phase any more.
bool MpiEngine::post_phase(MpiOperation& operation, Piece& piece) {
  switch (operation.kind) {
    case Kind::all_reduce:
      if (piece.phase == 0) exchange_slices(operation, piece);
      if (piece.phase == 1) {
        reduce_slice(operation, piece);
        gather_slices(operation, piece);
      }
      return piece.phase < 2;
    case Kind::all_reduce_tree: return tree_phase(operation, piece);
    case Kind::all_reduce_direct:
    case Kind::reduce_scatter:
      if (piece.phase == 0) exchange_slices(operation, piece);
      if (piece.phase == 1) reduce_slice(operation, piece);
      return piece.phase < 1;
    case Kind::all_gather:
      if (piece.phase == 0) {
        copy_own_part(operation, piece);
        gather_slices(operation, piece);
      }
      return piece.phase < 1;
    case Kind::broadcast: return broadcast_phase(operation, piece);
    case Kind::send:
    case Kind::receive: {
      if (piece.phase > 0) return false;
      const std::int64_t bytes = operation.elements * element_bytes(operation);
      if (operation.kind == Kind::send) send(operation, piece, operation.peer, operation.input, bytes);
      if (operation.kind == Kind::receive) receive(operation, piece, operation.peer, operation.output, bytes);
      return true;
    }
    case Kind::barrier:
      if (piece.phase > 0) return false;
      piece.requests.push_back(MPI_REQUEST_NULL);
      piece.expected.push_back(-1);
      MPI_CHECK(MPI_Ibarrier(operation.comm, &piece.requests.back()));
      return true;
  }
  return false;
}

// Everybody sends each rank its slice (small tensors: the whole) and receives its own from all into its lane.
void MpiEngine::exchange_slices(const MpiOperation& operation, Piece& piece) {
  const bool whole = operation.kind == Kind::all_reduce_direct;
  const std::int64_t width = element_bytes(operation);
  const Slice everything{piece.first, piece.count};
  const std::int64_t own_bytes = (whole ? everything : slice_of(operation, piece, operation.rank)).count * width;
  internal_check(static_cast<std::size_t>(own_bytes * (operation.size - 1)) <= operation.need.piece_bytes,
                 "a piece larger than its staging");
  for (int step = 1; step < operation.size; ++step) {
    const int from = (operation.rank + operation.size - step) % operation.size;
    receive(operation, piece, from, staged(operation, piece, from, own_bytes), own_bytes);
  }
  for (int step = 1; step < operation.size; ++step) {
    const int to = (operation.rank + step) % operation.size;
    const Slice slice = whole ? everything : slice_of(operation, piece, to);
    send(operation, piece, to, operation.input + slice.first * width, slice.count * width);
  }
}

// Combines what exchange_slices() brought with this rank's own, in rank order, into the output.
void MpiEngine::reduce_slice(const MpiOperation& operation, Piece& piece) {
  const std::int64_t width = element_bytes(operation);
  const bool whole = operation.kind == Kind::all_reduce_direct;
  const Slice own = whole ? Slice{piece.first, piece.count} : slice_of(operation, piece, operation.rank);
  sources_.clear();
  for (int from = 0; from < operation.size; ++from) {
    sources_.push_back(from == operation.rank ? operation.input + own.first * width
                                              : staged(operation, piece, from, own.count * width));
  }
  const std::int64_t target = operation.kind == Kind::reduce_scatter ? piece.first : own.first;
  reduce_in_rank_order(operation.dtype, operation.reduce, sources_, operation.output + target * width, own.count);
}

// All-gather: this rank's part into its place in the whole, unless it is there already.
void MpiEngine::copy_own_part(const MpiOperation& operation, const Piece& piece) {
  const std::int64_t width = element_bytes(operation);
  const std::byte* from = operation.input + piece.first * width;
  std::byte* to = operation.output + slice_of(operation, piece, operation.rank).first * width;
  if (from != to) std::memcpy(to, from, static_cast<std::size_t>(piece.count * width));
}

// Everybody sends its slice of the output to all and receives theirs.
void MpiEngine::gather_slices(const MpiOperation& operation, Piece& piece) {
  const std::int64_t width = element_bytes(operation);
  const Slice own = slice_of(operation, piece, operation.rank);
  for (int step = 1; step < operation.size; ++step) {
    const int from = (operation.rank + operation.size - step) % operation.size;
    const Slice slice = slice_of(operation, piece, from);
    receive(operation, piece, from, operation.output + slice.first * width, slice.count * width);
  }
  for (int step = 1; step < operation.size; ++step) {
    const int to = (operation.rank + step) % operation.size;
    send(operation, piece, to, operation.output + own.first * width, own.count * width);
  }
}

// Up a binomial tree to rank 0, which adds everybody's in rank order, and down again. A rank's lane holds its own and
// those of the ranks below it, which are the next ones by number: one message to its parent.
bool MpiEngine::tree_phase(const MpiOperation& operation, Piece& piece) {
  const std::int64_t bytes = piece.count * element_bytes(operation);
  const int rank = operation.rank, size = operation.size;
  const int children = tree_children(rank, size), parent = rank & (rank - 1);
  if (piece.phase == 0) {
    std::memcpy(operation.lane, operation.input, static_cast<std::size_t>(bytes));
    for (int child = 0; child < children; ++child) {
      const int below = 1 << child, ranks = std::min(below, size - rank - below);
      receive(operation, piece, rank + below, operation.lane + below * bytes, ranks * bytes);
    }
  }
  if (piece.phase == 1 && rank != 0) {
    const int below = rank & -rank, ranks = std::min(below, size - rank);
    receive(operation, piece, parent, operation.output, bytes);
    send(operation, piece, parent, operation.lane, ranks * bytes);
  }
  if (piece.phase == 2) {
    if (rank == 0) {
      sources_.clear();
      for (int from = 0; from < size; ++from) sources_.push_back(operation.lane + from * bytes);
      reduce_in_rank_order(operation.dtype, operation.reduce, sources_, operation.output, piece.count);
    }
    for (int child = 0; child < children; ++child) {
      send(operation, piece, rank + (1 << child), operation.output, bytes);
    }
  }
  return piece.phase < 3;
}

// Down a binomial tree rooted at peer: a rank's parent is its number (counted from the root) without the lowest set
// bit.
bool MpiEngine::broadcast_phase(const MpiOperation& operation, Piece& piece) {
  const std::int64_t width = element_bytes(operation);
  std::byte* data = operation.output + piece.first * width;
  const int number = (operation.rank + operation.size - operation.peer) % operation.size;
  const auto rank_of_number = [&](int n) { return (n + operation.peer) % operation.size; };
  if (piece.phase == 0 && number != 0) {
    receive(operation, piece, rank_of_number(number & (number - 1)), data, piece.count * width);
  }
  if (piece.phase == 1) {
    for (int child = 0; child < tree_children(number, operation.size); ++child) {
      send(operation, piece, rank_of_number(number + (1 << child)), data, piece.count * width);
    }
  }
  return piece.phase < 2;
}

namespace {

int tag_of(const MpiOperation& operation, const Piece& piece) {
  if (operation.kind == Kind::send || operation.kind == Kind::receive) return operation.tag;
  // Messages of different pieces and phases may be posted in another order on the other side: they must not mix.
  // (On the edge of a tree they cannot: one goes up, one down. A parent's phase is not its child's.)
  const bool tree = operation.kind == Kind::broadcast || operation.kind == Kind::all_reduce_tree;
  const int phase = tree ? 0 : piece.phase;
  return operation.tag + static_cast<int>(&piece - operation.pieces.data()) * 2 + phase;
}

}  // namespace

void MpiEngine::send(const MpiOperation& operation, Piece& piece, int to, const std::byte* data, std::int64_t bytes) {
  for (std::int64_t done = 0; done < bytes; done += kMessageBytes) {
    const int count = static_cast<int>(std::min(kMessageBytes, bytes - done));
    piece.requests.push_back(MPI_REQUEST_NULL);
    piece.expected.push_back(-1);
    ++messages_sent_;
    MPI_CHECK(
        MPI_Isend(data + done, count, MPI_BYTE, to, tag_of(operation, piece), operation.comm, &piece.requests.back()));
  }
}

void MpiEngine::receive(const MpiOperation& operation, Piece& piece, int from, std::byte* data, std::int64_t bytes) {
  for (std::int64_t done = 0; done < bytes; done += kMessageBytes) {
    const int count = static_cast<int>(std::min(kMessageBytes, bytes - done));
    piece.requests.push_back(MPI_REQUEST_NULL);
    piece.expected.push_back(count);
    MPI_CHECK(MPI_Irecv(data + done, count, MPI_BYTE, from, tag_of(operation, piece), operation.comm,
                        &piece.requests.back()));
  }
}

// True when all of the piece's messages are through; checks that they had the size that was asked for.
bool MpiEngine::complete(const MpiOperation& operation, Piece& piece) {
  if (piece.requests.empty()) return true;
  piece.statuses.resize(piece.requests.size());
  int done = 0;
  const int code =
      MPI_Testall(static_cast<int>(piece.requests.size()), piece.requests.data(), &done, piece.statuses.data());
  if (code == MPI_ERR_IN_STATUS) {
    for (const MPI_Status& status : piece.statuses) {
      if (status.MPI_ERROR != MPI_ERR_PENDING) {
        check_mpi(status.MPI_ERROR, fmt::format("{} in group '{}', rank {} of {}", name_of(operation.kind),
                                                operation.group, operation.rank, operation.size)
                                        .c_str());
      }
    }
  }
  MPI_CHECK(code);
  if (done == 0) return false;
  for (std::size_t i = 0; i < piece.requests.size(); ++i) {
    if (piece.expected[i] < 0) continue;
    int received = 0;
    MPI_CHECK(MPI_Get_count(&piece.statuses[i], MPI_BYTE, &received));
    verify(received == piece.expected[i], ErrorKind::communication,
           "{} in group '{}', rank {} of {}: rank {} sent {} bytes where {} were expected", name_of(operation.kind),
           operation.group, operation.rank, operation.size, piece.statuses[i].MPI_SOURCE, received, piece.expected[i]);
  }
  piece.requests.clear();
  piece.expected.clear();
  return true;
}

}  // namespace megatron

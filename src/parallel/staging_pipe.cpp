#include "parallel/staging_pipe.h"

#include <algorithm>

namespace megatron {

namespace {

std::size_t bytes_of(const StagedOperation& operation, std::int64_t elements) {
  const DType type = operation.input.empty() ? operation.output.dtype() : operation.input.dtype();
  return static_cast<std::size_t>(elements) * size_of(type);
}

}  // namespace

// Ranks' parts that lie side by side in a lane.
int StagingPipe::parts_of(const StagedOperation& operation) const {
  return operation.verb == Verb::all_gather || operation.verb == Verb::reduce_scatter ? host_.size() : 1;
}

bool StagingPipe::advance() {
  bool moved = false;
  while (begin() || start_on_host() || finish()) moved = true;
  return moved;
}

bool StagingPipe::begin() {
  if (waiting_.empty() || next_ - oldest_ == pieces_.size()) return false;
  Piece& piece = this->piece(next_);
  if (!device_.complete(piece.copied_in)) return false;
  StagedOperation& operation = *waiting_.front();
  const int parts = parts_of(operation);
  const auto width = static_cast<std::int64_t>(bytes_of(operation, 1));
  const PinnedPieces pieces = pinned_pieces(operation.elements, width, parts);
  if (piece.lane_bytes < pieces.bytes) {
    if (piece.lane != nullptr) pinned_.give_back(piece.lane);
    piece.lane = pinned_.take(pieces.bytes);
    piece.lane_bytes = pieces.bytes;
  }
  piece.operation = &operation;
  piece.first = operation.begun;
  piece.count = std::min(pieces.elements, operation.elements - operation.begun);
  copy_out(piece);
  operation.begun += piece.count;
  if (operation.begun == operation.elements) waiting_.erase(waiting_.begin());
  ++next_;
  return true;
}

// In the order of pieces: copies out are complete in that order, and where there are none the host has its own.
bool StagingPipe::start_on_host() {
  if (on_host_ == next_) return false;
  Piece& piece = this->piece(on_host_);
  if (!device_.complete(piece.copied_out)) return false;
  piece.pending = start(piece);
  ++on_host_;
  return true;
}

bool StagingPipe::finish() {
  if (oldest_ == on_host_) return false;
  Piece& piece = this->piece(oldest_);
  if (!piece.pending.ready()) return false;
  piece.pending.wait();
  copy_in(piece);
  piece.operation->over += piece.count;
  ++oldest_;
  return true;
}

// A gather's own part goes to its place among the others', a scatter's whole is everybody's parts.
void StagingPipe::copy_out(Piece& piece) {
  const StagedOperation& operation = *piece.operation;
  piece.copied_out = {};
  if (operation.input.empty()) return;
  const auto* from = static_cast<const std::byte*>(operation.input.data());
  const int parts = operation.verb == Verb::reduce_scatter ? host_.size() : 1;
  const int place = operation.verb == Verb::all_gather ? host_.rank() : 0;
  const std::size_t bytes = bytes_of(operation, piece.count);
  for (int part = 0; part < parts; ++part) {
    piece.copied_out = device_.start_copy_to_host(piece.lane + static_cast<std::size_t>(place + part) * bytes,
                                                  from + bytes_of(operation, part * operation.elements + piece.first),
                                                  bytes, operation.started);
  }
}

void StagingPipe::copy_in(Piece& piece) {
  StagedOperation& operation = *piece.operation;
  piece.copied_in = {};
  if (operation.output.empty()) return;
  auto* to = static_cast<std::byte*>(operation.output.data());
  const int parts = operation.verb == Verb::all_gather ? host_.size() : 1;
  const int place = operation.verb == Verb::reduce_scatter ? host_.rank() : 0;
  const std::size_t bytes = bytes_of(operation, piece.count);
  for (int part = 0; part < parts; ++part) {
    piece.copied_in = device_.start_copy_to_device(to + bytes_of(operation, part * operation.elements + piece.first),
                                                   piece.lane + static_cast<std::size_t>(place + part) * bytes, bytes,
                                                   operation.started);
  }
  operation.last_copy = piece.copied_in;
}

Pending StagingPipe::start(const Piece& piece) {
  const StagedOperation& operation = *piece.operation;
  const DType type = operation.input.empty() ? operation.output.dtype() : operation.input.dtype();
  const Tensor whole(piece.lane, {piece.count * parts_of(operation)}, type);
  const auto own = [&] { return whole.slice(0, host_.rank() * piece.count, piece.count); };
  switch (operation.verb) {
    case Verb::all_reduce: return host_.start_all_reduce(whole, operation.reduce);
    case Verb::all_gather: return host_.start_all_gather(own(), whole);
    case Verb::reduce_scatter: return host_.start_reduce_scatter(whole, own());
    case Verb::broadcast: return host_.start_broadcast(whole, operation.peer);
    case Verb::send: return host_.start_send(whole, operation.peer, operation.channel);
    case Verb::receive: return host_.start_receive(whole, operation.peer, operation.channel);
    default: fail(ErrorKind::internal, "a verb that cannot be staged");
  }
}

void StagingPipe::wait_for_copies() {
  internal_check(idle(), "the lanes of a pipe that is in use");
  for (Piece& piece : pieces_) {
    device_.wait(piece.copied_in);
    if (piece.lane != nullptr) pinned_.give_back(piece.lane);
    piece = {};
  }
}

void StagingPipe::give_up() noexcept {
  waiting_.clear();
  for (Piece& piece : pieces_) Pending dropped = std::move(piece.pending);
  oldest_ = on_host_ = next_;
}

}  // namespace megatron

#include "distributed/parallel/staging_pipe.h"

#include <algorithm>

namespace megatron {

namespace {

std::size_t bytes_of(const StagedOperation& operation, std::int64_t elements) {
  const DType type = operation.input.empty() ? operation.output.dtype() : operation.input.dtype();
  return static_cast<std::size_t>(elements) * size_of(type);
}

}  // namespace

// Ranks' parts that lie side by side in a buffer.
int StagingPipe::parts_of(const StagedOperation& operation) const {
  switch (operation.verb) {
    case Verb::all_gather:
    case Verb::reduce_scatter: return host_.size();
    case Verb::all_to_all: return 2 * host_.size();  // parts to send, then parts to receive
    default: return 1;
  }
}

bool StagingPipe::advance() {
  bool moved = false;
  while (begin() || start_on_host() || finish()) moved = true;
  return moved;
}

bool StagingPipe::begin() {
  if (waiting_.empty() || next_ - oldest_ == chunks_.size()) return false;
  MessageChunk& chunk = this->chunk(next_);
  if (!device_.complete(chunk.copied_in)) return false;
  StagedOperation& operation = *waiting_.front();
  const int parts = parts_of(operation);
  const auto width = static_cast<std::int64_t>(bytes_of(operation, 1));
  const PinnedChunks chunks = pinned_chunks(operation.elements, width, parts);
  if (chunk.buffer_bytes < chunks.bytes) {
    if (chunk.buffer != nullptr) pinned_.give_back(chunk.buffer);
    chunk.buffer = pinned_.take(chunks.bytes);
    chunk.buffer_bytes = chunks.bytes;
  }
  chunk.operation = &operation;
  chunk.first = operation.begun;
  chunk.count = std::min(chunks.elements, operation.elements - operation.begun);
  copy_out(chunk);
  operation.begun += chunk.count;
  if (operation.begun == operation.elements) waiting_.erase(waiting_.begin());
  ++next_;
  return true;
}

// In the order of chunks: copies out are complete in that order, and where there are none the host has its own.
bool StagingPipe::start_on_host() {
  if (on_host_ == next_) return false;
  MessageChunk& chunk = this->chunk(on_host_);
  if (!device_.complete(chunk.copied_out)) return false;
  chunk.pending = start(chunk);
  ++on_host_;
  return true;
}

bool StagingPipe::finish() {
  if (oldest_ == on_host_) return false;
  MessageChunk& chunk = this->chunk(oldest_);
  if (!chunk.pending.ready()) return false;
  chunk.pending.wait();
  copy_in(chunk);
  chunk.operation->over += chunk.count;
  ++oldest_;
  return true;
}

// A gather's own part goes to its place among the others', a scatter's whole is the parts of all ranks. An all-to-all's
// own part stays where it is: its place is left as it was.
void StagingPipe::copy_out(MessageChunk& chunk) {
  const StagedOperation& operation = *chunk.operation;
  chunk.copied_out = {};
  if (operation.input.empty()) return;
  const auto* from = static_cast<const std::byte*>(operation.input.data());
  const bool exchange = operation.verb == Verb::all_to_all;
  const int parts = exchange || operation.verb == Verb::reduce_scatter ? host_.size() : 1;
  const int place = operation.verb == Verb::all_gather ? host_.rank() : 0;
  const std::size_t bytes = bytes_of(operation, chunk.count);
  for (int part = 0; part < parts; ++part) {
    if (exchange && part == host_.rank()) continue;
    chunk.copied_out = device_.start_copy_to_host(chunk.buffer + static_cast<std::size_t>(place + part) * bytes,
                                                  from + bytes_of(operation, part * operation.elements + chunk.first),
                                                  bytes, operation.started);
  }
}

void StagingPipe::copy_in(MessageChunk& chunk) {
  StagedOperation& operation = *chunk.operation;
  chunk.copied_in = {};
  if (operation.output.empty()) return;
  auto* to = static_cast<std::byte*>(operation.output.data());
  const bool exchange = operation.verb == Verb::all_to_all;
  const int parts = exchange || operation.verb == Verb::all_gather ? host_.size() : 1;
  const int place = exchange ? host_.size() : operation.verb == Verb::reduce_scatter ? host_.rank() : 0;
  const std::size_t bytes = bytes_of(operation, chunk.count);
  for (int part = 0; part < parts; ++part) {
    if (exchange && part == host_.rank()) continue;
    chunk.copied_in = device_.start_copy_to_device(to + bytes_of(operation, part * operation.elements + chunk.first),
                                                   chunk.buffer + static_cast<std::size_t>(place + part) * bytes, bytes,
                                                   operation.started);
  }
  operation.last_copy = chunk.copied_in;
}

Pending StagingPipe::start(const MessageChunk& chunk) {
  const StagedOperation& operation = *chunk.operation;
  const DType type = operation.input.empty() ? operation.output.dtype() : operation.input.dtype();
  const Tensor whole(chunk.buffer, {chunk.count * parts_of(operation)}, type);
  const auto own = [&] { return whole.slice(0, host_.rank() * chunk.count, chunk.count); };
  switch (operation.verb) {
    case Verb::all_reduce: return host_.start_all_reduce(whole, passed_on(operation.reduce));
    case Verb::all_gather: return host_.start_all_gather(own(), whole, kPassedOn);
    case Verb::reduce_scatter: return host_.start_reduce_scatter(whole, own(), kPassedOn);
    case Verb::broadcast: return host_.start_broadcast(whole, operation.peer, kPassedOn);
    case Verb::all_to_all: {
      const std::int64_t all = chunk.count * host_.size();
      return host_.start_all_to_all(whole.slice(0, 0, all), whole.slice(0, all, all), kPassedOn);
    }
    case Verb::send: return host_.start_send(whole, operation.peer, operation.channel, kPassedOn);
    case Verb::receive: return host_.start_receive(whole, operation.peer, operation.channel, kPassedOn);
    default: fail(ErrorKind::internal, "a verb that cannot be staged");
  }
}

void StagingPipe::wait_for_copies() {
  internal_check(idle(), "the buffers of a pipe that is in use");
  for (MessageChunk& chunk : chunks_) {
    device_.wait(chunk.copied_in);
    if (chunk.buffer != nullptr) pinned_.give_back(chunk.buffer);
    chunk = {};
  }
}

void StagingPipe::give_up() noexcept {
  waiting_.clear();
  for (MessageChunk& chunk : chunks_) Pending dropped = std::move(chunk.pending);
  oldest_ = on_host_ = next_;
}

}  // namespace megatron

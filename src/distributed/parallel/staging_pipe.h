// StagingPipe: one order of operations between a device's tensors and a communicator of the host: a group's
// collectives, or its messages to or from one peer on one channel. Nothing here waits but wait_for_copies(). Must not
// know groups beyond the communicator, nor who waits for what.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "backend/ops/device.h"
#include "distributed/comm/communicator.h"

namespace megatron {

struct StagedOperation {
  Verb verb = Verb::none;
  Reduce reduce = Reduce::sum;
  int peer = 0, channel = 0;  // root, to or from
  ConstTensor input{};        // on the device; absent: nothing goes out (a receive)
  Tensor output{};            // on the device; absent: nothing comes in (a send)
  std::int64_t elements = 0;  // in the tensor, or in each rank's part
  Ticket started{};           // after the device's operations before its start

  std::int64_t begun = 0, over = 0;  // elements
  Ticket last_copy{};                // into the output
  bool done() const { return over == elements; }
};

/// Operations go through in chunks, which have two buffers of pinned memory in turn. A chunk is copied out after the
/// device's operations that came before its start, begun on the host when it is there, and copied in when the host is
/// done; so one chunk's copies overlap another's messages. Chunks are begun on the host in the order of the operations,
/// which is the same on all ranks.
class StagingPipe {
 public:
  /// All must outlive the pipe; operations must outlive their being done.
  StagingPipe(Communicator& host, Device& device, Staging& pinned) : host_(host), device_(device), pinned_(pinned) {}
  StagingPipe(const StagingPipe&) = delete;
  StagingPipe& operator=(const StagingPipe&) = delete;

  void push(StagedOperation& operation) { waiting_.push_back(&operation); }
  /// Takes every chunk as far as it goes without waiting; true if anything moved.
  bool advance();
  bool idle() const { return waiting_.empty() && oldest_ == next_; }
  /// Gives the buffers back; when idle.
  void wait_for_copies();
  /// While an exception unwinds: forgets everything.
  void give_up() noexcept;

 private:
  struct MessageChunk {
    StagedOperation* operation = nullptr;
    std::int64_t first = 0, count = 0;  // elements of the tensor, or of each part
    Ticket copied_out;
    Pending pending;
    Ticket copied_in;  // the buffer is free again
    std::byte* buffer = nullptr;
    std::size_t buffer_bytes = 0;
  };

  MessageChunk& chunk(std::uint64_t number) { return chunks_[number % chunks_.size()]; }
  int parts_of(const StagedOperation& operation) const;
  bool begin();
  bool start_on_host();
  bool finish();
  void copy_out(MessageChunk& chunk);
  void copy_in(MessageChunk& chunk);
  Pending start(const MessageChunk& chunk);

  Communicator& host_;
  Device& device_;
  Staging& pinned_;
  std::vector<StagedOperation*> waiting_;  // not all of their chunks are begun
  std::array<MessageChunk, kChunksInFlight> chunks_;
  std::uint64_t oldest_ = 0, on_host_ = 0, next_ = 0;  // chunks: in flight, begun on the host up to, begun up to
};

}  // namespace megatron

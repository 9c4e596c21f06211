#include "distributed/comm/counting_communicator.h"

#include <algorithm>

namespace megatron {

CountingCommunicator::CountingCommunicator(int rank, int size, std::string name, bool staged)
    : Communicator(rank, size, std::move(name)), staged_(staged) {
  internal_check(rank >= 0 && rank < size, "counting communicator for a rank outside its group", rank, size);
}

std::unique_ptr<Communicator> CountingCommunicator::do_split(int, int, const std::string& name) {
  fail(ErrorKind::internal, "group '{}' of a counting communicator needs split_known()", name);
}

std::unique_ptr<Communicator> CountingCommunicator::split_known(const std::vector<int>& colours,
                                                                const std::string& name) {
  internal_check(colours.size() == static_cast<std::size_t>(size()), "split needs one colour for every rank",
                 colours.size(), size());
  const auto self = colours.begin() + rank();
  return std::make_unique<CountingCommunicator>(static_cast<int>(std::count(colours.begin(), self, *self)),
                                                static_cast<int>(std::count(colours.begin(), colours.end(), *self)),
                                                name, staged_);
}

// Two buffers a pipe, all of them of one size.
std::int64_t CountingCommunicator::pin(Pipe pipe, std::int64_t elements, DType type, int parts) {
  if (!staged_) return elements;
  pipes_.insert(pipe);
  const PinnedChunks chunks = pinned_chunks(elements, static_cast<std::int64_t>(size_of(type)), parts);
  staging_.pinned.count = static_cast<int>(pipes_.size()) * kChunksInFlight;
  staging_.pinned.bytes_each = std::max(staging_.pinned.bytes_each, chunks.bytes);
  return chunks.elements;
}

std::int64_t CountingCommunicator::pin(Pipe pipe, ConstTensor values, int parts) {
  return pin(pipe, values.elements(), values.dtype(), parts);
}

std::uint64_t CountingCommunicator::reduce(std::size_t bytes, bool chunks) {
  ++reductions_in_flight_;
  StagingBuffers& buffers = staging_.reductions;
  buffers.count =
      std::max(buffers.count, chunks ? kCollectivesInFlight : std::min(reductions_in_flight_, kCollectivesInFlight));
  buffers.bytes_each = std::max(buffers.bytes_each, bytes);
  return kReduction;
}

// A plan is played with the longest sequences; shorter ones must not need more.
std::uint64_t CountingCommunicator::do_all_reduce(Tensor values, Reduce) {
  const std::int64_t elements = pin({Verb::all_reduce, 0, 0}, values);
  return reduce(most_for_all_reduces(elements, static_cast<std::int64_t>(size_of(values.dtype())), size()),
                elements < values.elements());
}

std::uint64_t CountingCommunicator::do_reduce_scatter(ConstTensor, Tensor part) {
  const std::int64_t elements = pin({Verb::all_reduce, 0, 0}, part, size());
  return reduce(reduce_scatter_need(elements, static_cast<std::int64_t>(size_of(part.dtype())), size()).bytes(),
                elements < part.elements());
}

std::uint64_t CountingCommunicator::do_all_gather(ConstTensor part, Tensor) {
  pin({Verb::all_reduce, 0, 0}, part, size());
  return 0;
}

std::uint64_t CountingCommunicator::do_broadcast(Tensor values, int) {
  pin({Verb::all_reduce, 0, 0}, values);
  return 0;
}

// Pinned memory holds what goes out and what comes in.
std::uint64_t CountingCommunicator::do_all_to_all(ConstTensor send, Tensor) {
  pin({Verb::all_reduce, 0, 0}, send.elements() / size(), send.dtype(), 2 * size());
  return 0;
}

std::uint64_t CountingCommunicator::do_send(ConstTensor values, int to, int channel) {
  pin({Verb::send, to, channel}, values);
  return 0;
}

std::uint64_t CountingCommunicator::do_receive(Tensor values, int from, int channel) {
  pin({Verb::receive, from, channel}, values);
  return 0;
}

void CountingCommunicator::finish(std::uint64_t ticket) {
  if (ticket == kReduction) --reductions_in_flight_;
}

}  // namespace megatron

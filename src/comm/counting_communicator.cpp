#include "comm/counting_communicator.h"

#include <algorithm>

namespace megatron {

CountingCommunicator::CountingCommunicator(int rank, int size, std::string name)
    : Communicator(rank, size, std::move(name)) {
  internal_check(rank >= 0 && rank < size, "counting communicator for a rank outside its group");
}

std::unique_ptr<Communicator> CountingCommunicator::do_split(int, int, const std::string& name) {
  fail(ErrorKind::internal, "group '{}' of a counting communicator needs split_known()", name);
}

std::unique_ptr<Communicator> CountingCommunicator::split_known(const std::vector<int>& colours,
                                                                const std::string& name) {
  internal_check(colours.size() == static_cast<std::size_t>(size()), "split needs one colour for every rank");
  const auto self = colours.begin() + rank();
  return std::make_unique<CountingCommunicator>(static_cast<int>(std::count(colours.begin(), self, *self)),
                                                static_cast<int>(std::count(colours.begin(), colours.end(), *self)),
                                                name);
}

std::uint64_t CountingCommunicator::stage(std::size_t bytes) {
  staging_.lanes = std::max(staging_.lanes, std::min(++reductions_in_flight_, kCollectivesInFlight));
  staging_.lane_bytes = std::max(staging_.lane_bytes, bytes);
  return kStaged;
}

// A plan is played with the longest sequences; shorter ones must not need more.
std::uint64_t CountingCommunicator::do_all_reduce(Tensor values, Reduce) {
  return stage(most_for_all_reduces(values.elements(), static_cast<std::int64_t>(size_of(values.dtype())), size()));
}

std::uint64_t CountingCommunicator::do_reduce_scatter(ConstTensor, Tensor part) {
  return stage(reduce_scatter_need(part.elements(), static_cast<std::int64_t>(size_of(part.dtype())), size()).bytes());
}

void CountingCommunicator::finish(std::uint64_t ticket) {
  if (ticket == kStaged) --reductions_in_flight_;
}

}  // namespace megatron

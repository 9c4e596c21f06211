#include "distributed/parallel/staged_communicator.h"

#include <algorithm>

#include "distributed/comm/poll_backoff.h"

namespace megatron {

namespace {
constexpr std::tuple<Verb, int, int> kCollectives{Verb::none, 0, 0};
}

StagedCommunicator::StagedCommunicator(Communicator& host, Device& device)
    : StagedCommunicator(host, nullptr, std::make_shared<Transport>(Transport{device, {}, false})) {}

StagedCommunicator::StagedCommunicator(std::unique_ptr<Communicator> host, std::shared_ptr<Transport> transport)
    : StagedCommunicator(*host, nullptr, std::move(transport)) {
  owned_host_ = std::move(host);
}

StagedCommunicator::StagedCommunicator(Communicator& host, std::unique_ptr<Communicator> owned,
                                       std::shared_ptr<Transport> transport)
    : Communicator(host.rank(), host.size(), host.name()),
      owned_host_(std::move(owned)),
      host_(host),
      transport_(std::move(transport)),
      device_(transport_->device),
      pinned_(device_.pinned()) {
  set_activity(host.activity());
  transport_->groups.push_back(this);
}

StagedCommunicator::~StagedCommunicator() {
  std::erase(transport_->groups, this);
}

std::unique_ptr<Communicator> StagedCommunicator::do_split(int colour, int key, const std::string& name) {
  return std::unique_ptr<Communicator>(new StagedCommunicator(host_.split(colour, key, name), transport_));
}

void StagedCommunicator::reserve_staging(const StagingPlan& plan) {
  host_.reserve_staging(plan);
  for (auto& [key, pipe] : pipes_) pipe.wait_for_copies();
  pinned_.reserve(plan.pinned);
}

std::uint64_t StagedCommunicator::do_all_reduce(Tensor values, Reduce reduce) {
  return start(
      kCollectives,
      {.verb = Verb::all_reduce, .reduce = reduce, .input = values, .output = values, .elements = values.elements()});
}

std::uint64_t StagedCommunicator::do_all_gather(ConstTensor part, Tensor whole) {
  return start(kCollectives, {.verb = Verb::all_gather, .input = part, .output = whole, .elements = part.elements()});
}

std::uint64_t StagedCommunicator::do_reduce_scatter(ConstTensor whole, Tensor part) {
  return start(kCollectives,
               {.verb = Verb::reduce_scatter, .input = whole, .output = part, .elements = part.elements()});
}

std::uint64_t StagedCommunicator::do_broadcast(Tensor values, int root) {
  StagedOperation operation{.verb = Verb::broadcast, .peer = root, .elements = values.elements()};
  if (root == rank()) {
    operation.input = values;
  } else {
    operation.output = values;
  }
  return start(kCollectives, operation);
}

// This rank's own part never leaves the device.
std::uint64_t StagedCommunicator::do_all_to_all(ConstTensor send, Tensor receive) {
  const std::size_t part_bytes = send.bytes() / static_cast<std::size_t>(size());
  const std::size_t own = static_cast<std::size_t>(rank()) * part_bytes;
  device_.copy_within(static_cast<std::byte*>(receive.data()) + own, static_cast<const std::byte*>(send.data()) + own,
                      part_bytes);
  return start(kCollectives,
               {.verb = Verb::all_to_all, .input = send, .output = receive, .elements = send.elements() / size()});
}

std::uint64_t StagedCommunicator::do_send(ConstTensor values, int to, int channel) {
  return start({Verb::send, to, channel},
               {.verb = Verb::send, .peer = to, .channel = channel, .input = values, .elements = values.elements()});
}

std::uint64_t StagedCommunicator::do_receive(Tensor values, int from, int channel) {
  return start(
      {Verb::receive, from, channel},
      {.verb = Verb::receive, .peer = from, .channel = channel, .output = values, .elements = values.elements()});
}

std::uint64_t StagedCommunicator::start(const PipeKey& key, const StagedOperation& operation) {
  verify(!transport_->broken, ErrorKind::communication, "communication after a failure on this rank");
  if (idle_.empty()) idle_.push_back(std::make_unique<StagedOperation>());
  active_.push_back(std::move(idle_.back()));
  idle_.pop_back();
  StagedOperation& started = *active_.back();
  started = operation;
  started.started = device_.mark();
  const auto pipe = pipes_.try_emplace(key, host_, device_, pinned_).first;
  pipe->second.push(started);
  pipe->second.advance();
  return reinterpret_cast<std::uintptr_t>(&started);
}

bool StagedCommunicator::advance() {
  bool moved = false, busy = false;
  for (auto& [key, pipe] : pipes_) busy = busy || !pipe.idle();
  if (!busy) return false;
  host_.progress();
  for (auto& [key, pipe] : pipes_) moved = pipe.advance() || moved;
  return moved;
}

bool StagedCommunicator::Transport::advance() {
  verify(!broken, ErrorKind::communication, "communication after a failure on this rank");
  bool moved = false;
  for (StagedCommunicator* group : groups) moved = group->advance() || moved;
  return moved;
}

bool StagedCommunicator::ready(std::uint64_t ticket) {
  return reinterpret_cast<const StagedOperation*>(static_cast<std::uintptr_t>(ticket))->done();
}

void StagedCommunicator::finish(std::uint64_t ticket) {
  const auto* operation = reinterpret_cast<const StagedOperation*>(static_cast<std::uintptr_t>(ticket));
  for (PollBackoff backoff; !operation->done();) {
    if (transport_->advance()) {
      backoff.moved();
    } else {
      backoff.rest();
    }
  }
  device_.order_after(operation->last_copy);
  const auto at =
      std::find_if(active_.begin(), active_.end(), [&](const auto& other) { return other.get() == operation; });
  internal_check(at != active_.end(), "an operation is waited for twice");
  idle_.push_back(std::move(*at));
  active_.erase(at);
}

void StagedCommunicator::abandon(std::uint64_t) noexcept {
  transport_->broken = true;
  for (StagedCommunicator* group : transport_->groups) {
    for (auto& [key, pipe] : group->pipes_) pipe.give_up();
  }
}

void StagedCommunicator::copy_alone(ConstTensor from, Tensor to) {
  device_.copy_within(to.data(), from.data(), from.bytes());
}

}  // namespace megatron

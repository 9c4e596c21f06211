#include "cuda/nccl_communicator.h"

#include <algorithm>
#include <cstring>

#include "cuda/nccl_blocks.h"
#include "cuda/nccl_support.h"
#include "distributed/comm/poll_backoff.h"

static_assert(NCCL_VERSION_CODE >= NCCL_VERSION(2, 18, 0), "NCCL 2.18 or later is needed, for non-blocking groups");

namespace megatron {

namespace {

// A ticket is the lane's number and the call's number on it.
constexpr int kCallBits = 48;
constexpr std::uint64_t kCollectivesLane = 0;

std::uint64_t ticket_of(std::uint64_t lane, std::uint64_t call) {
  return lane << kCallBits | call;
}
std::uint64_t lane_of(std::uint64_t ticket) {
  return ticket >> kCallBits;
}
std::uint64_t call_of(std::uint64_t ticket) {
  return ticket & ((std::uint64_t{1} << kCallBits) - 1);
}

/// `counted`: the tensor that has as many elements as NCCL is to be told.
NcclCall call_of(Verb verb, ConstTensor counted, ConstTensor input, Tensor output, int peer = 0) {
  return {.verb = verb,
          .input = input.data(),
          .output = output.data(),
          .elements = static_cast<std::size_t>(counted.elements()),
          .type = counted.dtype(),
          .peer = peer};
}

ncclUniqueId new_id() {
  ncclUniqueId id;
  check_nccl(ncclGetUniqueId(&id), nullptr, "making an id");
  return id;
}

Tensor bytes_of(ncclUniqueId& id) {
  return Tensor(&id, {static_cast<std::int64_t>(sizeof id)}, DType::u8);
}

}  // namespace

NcclCommunicator::NcclCommunicator(Communicator& host, CudaDevice& device)
    : NcclCommunicator(host, nullptr, std::make_shared<Transport>(Transport{device, {}})) {}

NcclCommunicator::NcclCommunicator(Communicator& host, std::unique_ptr<Communicator> owned,
                                   std::shared_ptr<Transport> transport)
    : Communicator(host.rank(), host.size(), host.name()),
      owned_host_(std::move(owned)),
      host_(host),
      transport_(std::move(transport)),
      device_(transport_->device) {
  set_activity(host.activity());
  if (size() > 1) connect_collectives();
  transport_->groups.push_back(this);
}

NcclCommunicator::~NcclCommunicator() {
  for (NcclLane* lane : lanes_) lane->start_end();
  std::erase(transport_->groups, this);
}

void NcclCommunicator::connect_collectives() {
  ncclUniqueId id{};
  if (rank() == 0) id = new_id();
  host_.broadcast(bytes_of(id), 0, kPassedOn);
  collectives_ = std::make_unique<NcclLane>(device_, "group '" + name() + "'", nccl_blocks(name()));
  lanes_.push_back(collectives_.get());
  collectives_->connect(id, size(), rank());
  for (PollBackoff backoff; !collectives_->connected(); backoff.rest()) collectives_->advance();
}

std::unique_ptr<Communicator> NcclCommunicator::do_split(int colour, int key, const std::string& name) {
  std::unique_ptr<Communicator> host = host_.split(colour, key, name);
  Communicator& part = *host;
  return std::unique_ptr<Communicator>(new NcclCommunicator(part, std::move(host), transport_));
}

std::uint64_t NcclCommunicator::start(std::uint64_t lane, NcclCall call) {
  call.after = device_.mark();
  return ticket_of(lane, lanes_[lane]->push(call));
}

std::uint64_t NcclCommunicator::do_all_reduce(Tensor values, Reduce reduce) {
  NcclCall call = call_of(Verb::all_reduce, values, values, values);
  call.reduce = reduce;
  return start(kCollectivesLane, call);
}

std::uint64_t NcclCommunicator::do_all_gather(ConstTensor part, Tensor whole) {
  return start(kCollectivesLane, call_of(Verb::all_gather, part, part, whole));
}

std::uint64_t NcclCommunicator::do_reduce_scatter(ConstTensor whole, Tensor part) {
  return start(kCollectivesLane, call_of(Verb::reduce_scatter, part, whole, part));
}

std::uint64_t NcclCommunicator::do_broadcast(Tensor values, int root) {
  return start(kCollectivesLane, call_of(Verb::broadcast, values, values, values, root));
}

std::uint64_t NcclCommunicator::do_all_to_all(ConstTensor send, Tensor receive) {
  NcclCall call = call_of(Verb::all_to_all, send, send, receive);
  call.elements /= static_cast<std::size_t>(size());
  return start(kCollectivesLane, call);
}

// On a lane of messages the sender is rank 0, the receiver rank 1.
std::uint64_t NcclCommunicator::do_send(ConstTensor values, int to, int channel) {
  return start(route_of({Verb::send, to, channel}), call_of(Verb::send, values, values, {}, 1));
}

std::uint64_t NcclCommunicator::do_receive(Tensor values, int from, int channel) {
  return start(route_of({Verb::receive, from, channel}), call_of(Verb::receive, values, {}, values, 0));
}

std::uint64_t NcclCommunicator::route_of(const RouteKey& key) {
  const auto [at, is_new] = routes_.try_emplace(key);
  Route& route = at->second;
  if (!is_new) return route.number;
  const auto [verb, peer, channel] = key;
  route.receives = verb == Verb::receive;
  route.lane = std::make_unique<NcclLane>(
      device_, fmt::format("group '{}', {} {} {}", name(), name_of(verb), route.receives ? "from" : "to", peer),
      kNcclMessageBlocks);
  route.number = lanes_.size();
  lanes_.push_back(route.lane.get());
  if (route.receives) {
    route.exchange = host_.start_receive(bytes_of(route.id), peer, channel, kPassedOn);
  } else {
    route.id = new_id();
    route.exchange = host_.start_send(bytes_of(route.id), peer, channel, kPassedOn);
    route.lane->connect(route.id, 2, 0);
  }
  return route.number;
}

bool NcclCommunicator::advance() {
  bool moved = collectives_ != nullptr && collectives_->advance();
  for (auto& [key, route] : routes_) {
    if (route.exchange.active()) {
      host_.progress();
      if (route.exchange.ready()) {
        route.exchange.wait();
        if (route.receives) route.lane->connect(route.id, 2, 1);
        moved = true;
      }
    }
    moved = route.lane->advance() || moved;
  }
  return moved;
}

bool NcclCommunicator::Transport::advance() {
  bool moved = false;
  for (NcclCommunicator* group : groups) moved = group->advance() || moved;
  return moved;
}

bool NcclCommunicator::ready(std::uint64_t ticket) {
  return lanes_[lane_of(ticket)]->posted(call_of(ticket));
}

void NcclCommunicator::finish(std::uint64_t ticket) {
  NcclLane& lane = *lanes_[lane_of(ticket)];
  for (PollBackoff backoff; !lane.posted(call_of(ticket));) {
    if (transport_->advance()) {
      backoff.moved();
    } else {
      backoff.rest();
    }
  }
  lane.order_operations_after(call_of(ticket));
}

void NcclCommunicator::abandon(std::uint64_t) noexcept {
  for (NcclCommunicator* group : transport_->groups) {
    for (NcclLane* lane : group->lanes_) lane->abort();
  }
}

void NcclCommunicator::copy_alone(ConstTensor from, Tensor to) {
  device_.copy_within(to.data(), from.data(), from.bytes());
}

std::string nccl_version() {
  int version = 0;
  if (ncclGetVersion(&version) != ncclSuccess) return {};
  return fmt::format("{}.{}.{}", version / 10000, version % 10000 / 100, version % 100);
}

std::unique_ptr<Communicator> connect_nccl(Communicator& host, Device& device) {
  auto* cuda = dynamic_cast<CudaDevice*>(&device);
  internal_check(cuda != nullptr, "NCCL with a device that is no GPU");
  return std::make_unique<NcclCommunicator>(host, *cuda);
}

}  // namespace megatron

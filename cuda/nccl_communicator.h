// NcclCommunicator: a group of ranks that moves tensors of its ranks' GPUs with NCCL. Control values and texts go
// through the host's communicator.
//
// start_...() puts the call on a stream after the device's operations so far, and wait() puts the operations that
// follow after the call. The host waits only until NCCL's own thread has put the call there; at a lane's first call
// that thread needs the other ranks too.
#pragma once

#include <nccl.h>

#include <map>
#include <memory>
#include <tuple>
#include <vector>

#include "cuda/nccl_lane.h"
#include "distributed/comm/communicator.h"

namespace megatron {

/// A group's collectives use one lane. Messages use lanes of two ranks, one for each (from, to, channel), so that no
/// message ever waits for another in the other direction, in whichever order ranks start them. Those lanes are made
/// when they are first used, by an id that the sender hands the receiver through the host's communicator.
///
/// Sums are NCCL's: the same bits in every run of one layout on one machine with NCCL_ALGO=Ring, but not in rank order,
/// and sums of 16-bit floats are rounded at every step of the ring. The maximum of numbers and NaN may be a number.
class NcclCommunicator final : public Communicator {
 public:
  /// Collective over `host`; both must outlive the communicator and the groups that are split off it. Returns when the
  /// lane of the collectives is connected.
  NcclCommunicator(Communicator& host, CudaDevice& device);
  ~NcclCommunicator() override;

  Communicator& host() override { return host_; }

 private:
  using RouteKey = std::tuple<Verb, int, int>;  // send to, or receive from, a peer on a channel
  struct Route {
    std::unique_ptr<NcclLane> lane;
    std::uint64_t number = 0;  // the lane's, in tickets
    ncclUniqueId id;
    Pending exchange;  // transfer of the id
    bool receives = false;
  };
  /// State that the groups of a rank share: waiting in one of them advances all.
  struct Transport {
    CudaDevice& device;
    std::vector<NcclCommunicator*> groups;
    bool advance();
  };

  NcclCommunicator(Communicator& host, std::unique_ptr<Communicator> owned, std::shared_ptr<Transport> transport);

  std::uint64_t do_all_reduce(Tensor values, Reduce reduce) override;
  std::uint64_t do_all_gather(ConstTensor part, Tensor whole) override;
  std::uint64_t do_reduce_scatter(ConstTensor whole, Tensor part) override;
  std::uint64_t do_broadcast(Tensor values, int root) override;
  std::uint64_t do_all_to_all(ConstTensor send, Tensor receive) override;
  std::uint64_t do_send(ConstTensor values, int to, int channel) override;
  std::uint64_t do_receive(Tensor values, int from, int channel) override;
  void do_barrier() override { host_.barrier(); }
  std::unique_ptr<Communicator> do_split(int colour, int key, const std::string& name) override;
  bool ready(std::uint64_t ticket) override;
  void finish(std::uint64_t ticket) override;
  void do_progress() override { transport_->advance(); }
  void abandon(std::uint64_t) noexcept override;
  void copy_alone(ConstTensor from, Tensor to) override;

  std::uint64_t start(std::uint64_t lane, NcclCall call);
  std::uint64_t route_of(const RouteKey& key);
  void connect_collectives();
  bool advance();

  std::unique_ptr<Communicator> owned_host_;
  Communicator& host_;
  std::shared_ptr<Transport> transport_;
  CudaDevice& device_;
  std::unique_ptr<NcclLane> collectives_;  // none in a group of one
  std::map<RouteKey, Route> routes_;
  std::vector<NcclLane*> lanes_;  // by number; the collectives' is the first
};

}  // namespace megatron

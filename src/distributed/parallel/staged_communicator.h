// StagedCommunicator: a group that moves tensors of a device through a communicator of the host, by way of pinned host
// memory. For several ranks on one device, or where no library connects the devices directly. The host's communicator
// adds up, so sums are the same bits that tensors in host memory give.
//
// Owns its pipes (distributed/parallel/staging_pipe.h) and their pinned buffers.
#pragma once

#include <map>
#include <memory>
#include <tuple>
#include <vector>

#include "backend/ops/device.h"
#include "distributed/comm/communicator.h"
#include "distributed/parallel/staging_pipe.h"

namespace megatron {

/// Groups that are split off one another share their transport: waiting for one operation advances all that are in
/// flight, of all groups, so that ranks may wait in different orders. Waiting makes the host wait for the other ranks,
/// and the device's later operations for the copies in; it never makes the host wait for the device's operations.
/// Control values and texts go straight to the host's communicator.
class StagedCommunicator final : public Communicator {
 public:
  /// The ranks of `host`, each with its own device; both must outlive the communicator and the groups that are
  /// split off it. Tensors are the device's.
  StagedCommunicator(Communicator& host, Device& device);
  ~StagedCommunicator() override;

  Communicator& host() override { return host_; }
  std::size_t staging_bytes() const override { return pinned_.bytes() + host_.staging_bytes(); }
  void reserve_staging(const StagingPlan& plan) override;

 private:
  using PipeKey = std::tuple<Verb, int, int>;  // collectives, or messages to or from a peer on a channel
  /// State that the groups of a rank share.
  struct Transport {
    Device& device;
    std::vector<StagedCommunicator*> groups;
    bool broken = false;
    bool advance();
  };

  StagedCommunicator(std::unique_ptr<Communicator> host, std::shared_ptr<Transport> transport);
  StagedCommunicator(Communicator& host, std::unique_ptr<Communicator> owned, std::shared_ptr<Transport> transport);

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
  void abandon(std::uint64_t ticket) noexcept override;
  void copy_alone(ConstTensor from, Tensor to) override;

  std::uint64_t start(const PipeKey& pipe, const StagedOperation& operation);
  bool advance();

  std::unique_ptr<Communicator> owned_host_;
  Communicator& host_;
  std::shared_ptr<Transport> transport_;
  Device& device_;
  Staging pinned_;
  std::map<PipeKey, StagingPipe> pipes_;
  std::vector<std::unique_ptr<StagedOperation>> active_, idle_;
};

}  // namespace megatron

// NcclLane: one NCCL communicator with its own stream, and the calls that go over it, in order.
//
// NCCL communicators are made non-blocking: connecting, and putting each call on the stream, continue while the host
// does something else, and advance() looks after them; so two ranks that wait for each other on different lanes both
// get on. Nothing here waits but the destructor, which ends the communicator in peace, or breaks it off when an
// exception unwinds.
#pragma once

#include <nccl.h>

#include <string>
#include <vector>

#include "base/core/activity.h"
#include "cuda/cuda_device.h"
#include "distributed/comm/communicator.h"

namespace megatron {

/// Throws Error(communication) with NCCL's own words and what to do, unless it is ncclSuccess or ncclInProgress.
void check_nccl(ncclResult_t result, ncclComm_t comm, const std::string& what);

/// One call, in elements of `type`.
struct NcclCall {
  Verb verb = Verb::none;
  Reduce reduce = Reduce::sum;
  const void* input = nullptr;
  void* output = nullptr;
  std::size_t elements = 0;  ///< as the function of NCCL counts: of gathers, scatters and all-to-alls a rank's part
  DType type = DType::f32;
  int peer = 0;    ///< rank of the lane: the root, or the other side
  Ticket after{};  ///< starts when this is complete
};

class NcclLane {
 public:
  /// `name` is for errors; `blocks`: the most that a call may use of the GPU (nccl_blocks.h). The device must outlive
  /// the lane.
  NcclLane(CudaDevice& device, std::string name, int blocks);
  ~NcclLane();
  NcclLane(const NcclLane&) = delete;
  NcclLane& operator=(const NcclLane&) = delete;

  /// Starts to connect with the lane's other ranks, who must do the same with the same id.
  void connect(const ncclUniqueId& id, int ranks, int rank);
  bool connected() const { return state_ != State::unconnected && state_ != State::connecting; }

  /// The call's number. Before connect() too: then it waits for that.
  std::uint64_t push(const NcclCall& call);
  /// Advances what is in flight; whether anything has moved. Throws what NCCL found wrong.
  bool advance();
  bool posted(std::uint64_t call) const { return call <= posted_; }
  bool complete(std::uint64_t call) { return posted(call) && queue_.complete(call); }
  /// The device's operations from now on start when the call, which must be posted, is complete. Throws what NCCL found
  /// wrong meanwhile, e.g. that a rank is gone.
  void order_operations_after(std::uint64_t call);
  /// Starts to end the communicator, which the destructor completes. Of all lanes of a rank before any is destroyed:
  /// NCCL destroys one only when the node's other ranks have started to end it, who may have lanes in another order.
  void start_end() noexcept;
  /// Breaks everything off, on the device too. Does not wait for other ranks, who may know of nothing yet.
  void abort() noexcept;

 private:
  enum class State { unconnected, connecting, idle, posting, aborted };
  bool settled(const char* what);
  void post(const NcclCall& call);
  ncclResult_t call_nccl(const NcclCall& call);
  ncclResult_t exchange(const NcclCall& call);

  CudaDevice& device_;
  std::string name_;
  int blocks_;
  CudaQueue queue_;
  ncclComm_t comm_ = nullptr;
  int ranks_ = 0;
  State state_ = State::unconnected;
  bool ending_ = false;
  ncclResult_t end_ = ncclInternalError;
  std::vector<NcclCall> calls_;            // not posted yet
  std::uint64_t pushed_ = 0, posted_ = 0;  // a posted call's number is its mark on the queue
};

}  // namespace megatron

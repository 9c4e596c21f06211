// CountingCommunicator: any rank of any group, alone in its process. For --dry-run: it moves nothing, never touches the
// tensors it is given (they come from sizing arenas) and only meters what would have been sent, and what the MPI
// communicators' reductions would hold.
//
// Received values are not there: reductions and texts come back as this rank gave them. Groups come from split_known().
#pragma once

#include "comm/communicator.h"

namespace megatron {

class CountingCommunicator : public Communicator {
 public:
  CountingCommunicator(int rank, int size, std::string name = "world");

  std::unique_ptr<Communicator> split_known(const std::vector<int>& colours, const std::string& name) override;
  StagingPlan staging_plan() const override { return staging_; }

 private:
  std::uint64_t do_all_reduce(Tensor values, Reduce) override;
  std::uint64_t do_all_gather(ConstTensor, Tensor) override { return 0; }
  std::uint64_t do_reduce_scatter(ConstTensor, Tensor part) override;
  std::uint64_t do_broadcast(Tensor, int) override { return 0; }
  std::uint64_t do_send(ConstTensor, int, int) override { return 0; }
  std::uint64_t do_receive(Tensor, int, int) override { return 0; }
  void do_barrier() override {}
  /// Internal error: the other ranks' colours are unknown here. ProcessGrid uses split_known().
  std::unique_ptr<Communicator> do_split(int colour, int key, const std::string& name) override;
  void finish(std::uint64_t ticket) override;
  void copy_alone(ConstTensor, Tensor) override {}
  bool reduces(DType) const override { return true; }
  std::uint64_t stage(std::size_t bytes);

  static constexpr std::uint64_t kStaged = 1;  // the ticket of a reduction
  int reductions_in_flight_ = 0;
  StagingPlan staging_;
};

}  // namespace megatron

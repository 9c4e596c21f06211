// CountingCommunicator: any rank of any group, alone in its process. For --dry-run: it moves nothing, never touches the
// tensors it is given (they come from sizing arenas) and only meters what would have been sent, and what the MPI
// communicators' reductions would hold; for a device's tensors that are staged
// (distributed/parallel/staged_communicator.h) also what the staging takes. Received values are not there: reductions
// and texts come back as this rank gave them. Groups come from split_known(). Derived classes may listen to the
// operations on their way (src/planning/layout_search).
#pragma once

#include <set>
#include <tuple>

#include "distributed/comm/communicator.h"

namespace megatron {

class CountingCommunicator : public Communicator {
 public:
  CountingCommunicator(int rank, int size, std::string name = "world", bool staged = false);

  std::unique_ptr<Communicator> split_known(const std::vector<int>& colours, const std::string& name) override;
  StagingPlan staging_plan() const override { return staging_; }

 protected:
  bool staged() const { return staged_; }

  std::uint64_t do_all_reduce(Tensor values, Reduce) override;
  std::uint64_t do_all_gather(ConstTensor part, Tensor) override;
  std::uint64_t do_reduce_scatter(ConstTensor, Tensor part) override;
  std::uint64_t do_broadcast(Tensor values, int) override;
  std::uint64_t do_all_to_all(ConstTensor send, Tensor) override;
  std::uint64_t do_send(ConstTensor values, int to, int channel) override;
  std::uint64_t do_receive(Tensor values, int from, int channel) override;
  void do_barrier() override {}
  /// Internal error: the other ranks' colours are unknown here. ProcessGrid uses split_known().
  std::unique_ptr<Communicator> do_split(int colour, int key, const std::string& name) override;
  bool ready(std::uint64_t) override { return true; }
  void finish(std::uint64_t ticket) override;
  void copy_alone(ConstTensor, Tensor) override {}
  bool reduces(DType) const override { return true; }

 private:
  using Pipe = std::tuple<Verb, int, int>;  // collectives, or messages to or from a peer on a channel

  /// Elements of a chunk of it on its way through pinned memory; all of them where there is none.
  std::int64_t pin(Pipe pipe, ConstTensor values, int parts = 1);
  std::int64_t pin(Pipe pipe, std::int64_t elements, DType type, int parts);
  std::uint64_t reduce(std::size_t bytes, bool chunks);

  static constexpr std::uint64_t kReduction = 1;  // the ticket of one
  bool staged_;
  int reductions_in_flight_ = 0;
  std::set<Pipe> pipes_;
  StagingPlan staging_;
};

}  // namespace megatron

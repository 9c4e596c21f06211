// MpiCommunicator: host tensors over MPI. Reductions are in rank order, the same bits on every rank and in every run.
//
// Owns its MPI communicator, so that messages of different groups never mix. All communicators of a process share one
// MpiEngine, which does the work. Made by MpiSession (the world) and by split(); must die before the session. Not
// included above src/distributed/comm.
#pragma once

#include "distributed/comm/mpi_engine.h"

namespace megatron {

class MpiCommunicator : public Communicator {
 public:
  /// Takes over `comm`, whose errors must return.
  MpiCommunicator(MPI_Comm comm, std::shared_ptr<MpiEngine> engine, std::string name);
  ~MpiCommunicator() override;

  void reserve_staging(const StagingPlan& plan) override { staging_.reserve(plan.reductions); }
  std::size_t staging_bytes() const override { return staging_.bytes(); }
  /// By this process so far, in all groups.
  std::int64_t messages_sent() const { return engine_->messages_sent(); }

 private:
  std::uint64_t do_all_reduce(Tensor values, Reduce reduce) override;
  std::uint64_t do_all_gather(ConstTensor part, Tensor whole) override;
  std::uint64_t do_reduce_scatter(ConstTensor whole, Tensor part) override;
  std::uint64_t do_broadcast(Tensor values, int root) override;
  std::uint64_t do_all_to_all(ConstTensor send, Tensor receive) override;
  std::uint64_t do_send(ConstTensor values, int to, int channel) override;
  std::uint64_t do_receive(Tensor values, int from, int channel) override;
  void do_barrier() override;
  std::unique_ptr<Communicator> do_split(int colour, int key, const std::string& name) override;
  bool ready(std::uint64_t ticket) override { return operation_of(ticket).done; }
  void finish(std::uint64_t ticket) override;
  void do_progress() override { engine_->progress(); }
  void abandon(std::uint64_t) noexcept override { engine_->give_up(); }

  static MpiOperation& operation_of(std::uint64_t ticket) {
    return *reinterpret_cast<MpiOperation*>(static_cast<std::uintptr_t>(ticket));
  }
  MpiOperation& create(MpiOperation::Kind kind, DType dtype, std::int64_t elements, const void* input, void* output);
  std::uint64_t start_collective(MpiOperation& operation);
  std::uint64_t start(MpiOperation& operation);

  MPI_Comm comm_;
  std::shared_ptr<MpiEngine> engine_;
  Staging staging_;
  std::uint64_t collectives_ = 0;  // started so far: numbers their tags
  std::uint64_t in_flight_ = 0;
};

/// The communicator over a duplicate of MPI_COMM_WORLD, with its own engine.
std::unique_ptr<Communicator> make_mpi_world();

}  // namespace megatron

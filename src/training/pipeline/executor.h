// PipelineExecutor: plays a schedule (a list of actions) on one rank: receives, computes, sends. The only place where
// stages and neighbours meet; schedules are data, so all of them and evaluation run through the same lines.
//
// Owns one arena per slot, and the buffers of the gradients that it sends back.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "base/core/timers.h"
#include "distributed/comm/process_grid.h"
#include "models/families/stage.h"
#include "training/pipeline/schedule.h"

namespace megatron {

/// Bytes of an executor's arenas.
struct ExecutorMemory {
  std::vector<std::size_t> slots;             ///< each: activations of a micro-batch in flight
  std::vector<std::size_t> gradient_buffers;  ///< each: a gradient on its way to the previous stage

  static std::size_t sum(const std::vector<std::size_t>& bytes);
  bool operator==(const ExecutorMemory&) const = default;
};

/// Each rank holds one stage of the model, or several chunks of it (interleaved schedules): then the ranks are a ring,
/// and the last rank's chunk c is followed by the first rank's chunk c + 1. One channel per neighbour and direction;
/// simulate.h proves that each message that arrives on it is the one that is meant.
///
/// A slot's arena holds what a micro-batch keeps from its forward to its backward, and the tensors on its links. The
/// gradients that are sent back have separate buffers, used in turn, since they may outlive the slot. Sends are started
/// and only waited for when their memory is used again, so that neighbours never wait for each other's receives
/// (simulate.h proves the lists free of deadlock under that rule).
class PipelineExecutor {
 public:
  /// A rank's chunks of the model in order, at least one. They must outlive the executor.
  using Chunks = std::vector<const Stage*>;

  using Lists = std::vector<const std::vector<Action>*>;

  /// Slots for these lists that have no memory and no limit, to learn memory_for() with counting operations.
  PipelineExecutor(Chunks chunks, const ProcessGrid& grid, const TensorRegion& region, const Lists& lists);
  /// For the lists that `memory` is for.
  PipelineExecutor(Chunks chunks, const ProcessGrid& grid, const TensorRegion& region, const ExecutorMemory& memory,
                   Allocator& allocator);

  /// Plays `actions` for these micro-batches. Forward actions add to settings.loss_sums, backward actions to the
  /// parameters' gradients. Returns when all local work and all transfers are complete.
  void run(const std::vector<Action>& actions, std::span<const MicroBatch> micro_batches, const PassSettings& settings,
           Ops& ops, Arena& scratch, Timers& timers);

  /// The memory that these lists take. Every chunk must have been played forward and backward.
  ExecutorMemory memory_for(const Lists& lists) const;
  ExecutorMemory used() const;  ///< the arenas' high-water marks

 private:
  // Memory that a neighbour may still be reading.
  struct SentMemory {
    Buffer memory;
    Arena arena;
    std::vector<Pending> sent;  // one per link

    explicit SentMemory(std::string name) : arena(std::move(name)) {}
    SentMemory(std::string name, Allocator& allocator, std::size_t bytes)
        : memory(allocator, bytes), arena(std::move(name), memory) {}
    void wait_for_sends();
    void start_again();  // nothing is in it
  };
  struct Slot {
    SentMemory memory;
    std::vector<std::unique_ptr<StageSaved>> saved;  // by chunk
    StageData in, out, dout;
    DeferredWeightGradients deferred_gradients;  // by a backward_input
  };
  struct GradientBuffer {
    SentMemory memory;
    StageData din;
  };

  void add_slot(SentMemory memory);
  void prepare(const std::vector<Action>& actions);
  void forward(const Stage& stage, Slot& slot, StageSaved& saved, Context& context);
  void backward(const Stage& stage, Slot& slot, StageSaved& saved, Context& context);
  void allocate_links(StageData& data, std::span<const Link> links, const char* what, Arena& arena,
                      const Context& context) const;
  void send(const StageData& link, std::vector<Pending>& sent, int to, int channel,
            const Holding<Hold::own>& said) const;

  Chunks chunks_;
  const ProcessGrid& grid_;
  const TensorRegion& region_;
  const ContextRegion context_region_;
  const int previous_, next_;  // ranks of the pipeline's ring
  struct Bytes {
    std::size_t forward = 0, backward = 0, evaluation = 0;  // the last: of a forward outside of training
  };
  std::vector<Bytes> chunk_bytes_;  // the most a slot has held of each chunk, at the end of each
  std::vector<Slot> slots_;
  std::vector<GradientBuffer> gradient_buffers_;
  std::size_t gradients_sent_ = 0;
  const StageData no_links_;                  // at the ends of the model
  std::vector<const Action*> last_backward_;  // by chunk: the action after which its gradients are complete
};

}  // namespace megatron

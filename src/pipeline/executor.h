// PipelineExecutor: plays a schedule (a list of actions) on one stage: receives, computes, sends. The only place where
// stages and neighbours meet; schedules are data, so GPipe, 1F1B and evaluation run through the same lines.
//
// Owns one arena per slot: what a micro-batch keeps from its forward to its backward, and the tensors on its links.
// Sends are started and only waited for when their slot is used again, so that neighbours never wait for each other's
// receives (simulate.h proves the lists free of deadlock under that rule).
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "base/timers.h"
#include "comm/process_grid.h"
#include "model/stage.h"
#include "pipeline/schedule.h"

namespace megatron {

/// What a pass over one step's micro-batches shares.
struct PassSettings {
  bool training = true;
  std::uint64_t seed = 0, step = 0;
  DType activation_type = DType::f32;
  GradientSums* gradient_sums =
      nullptr;  ///< if set: sums are started under the last backward; the caller finishes them
};

class PipelineExecutor {
 public:
  /// Sizing executor: `slots` arenas without memory, to learn slot_bytes() with counting ops.
  PipelineExecutor(const Stage& stage, const ProcessGrid& grid, const TensorRegion& region, int slots);
  /// Real executor: `slots` arenas of slot_bytes each from the allocator.
  PipelineExecutor(const Stage& stage, const ProcessGrid& grid, const TensorRegion& region, int slots,
                   Allocator& allocator, std::size_t slot_bytes);

  /// Plays `actions` for these micro-batches. The last stage adds its token losses to loss_total (f64 [1]); backward
  /// actions add to the parameters' gradients. Returns when all local work and all transfers are complete.
  void run(const std::vector<Action>& actions, std::span<const MicroBatch> micro_batches, const PassSettings& settings,
           Ops& ops, Arena& scratch, Tensor loss_total, Timers& timers);

  std::size_t slot_bytes() const;  ///< the largest high-water mark of a slot
  int slots() const { return static_cast<int>(slots_.size()); }

 private:
  struct Slot {
    Buffer memory;
    Arena arena;
    std::unique_ptr<StageSaved> saved;
    StageData in, out, din, dout;
    std::vector<Pending> sent_out, sent_din;  // one a link

    explicit Slot(std::string name) : arena(std::move(name)) {}
    void wait_for_sends();
  };

  void add_slot(Slot slot);
  void forward(Slot& slot, Context& context, Tensor loss_total);
  void backward(Slot& slot, Context& context);
  void allocate_link(StageData& link, const char* what, Slot& slot, const Context& context) const;

  const Stage& stage_;
  const ProcessGrid& grid_;
  const TensorRegion& region_;
  std::vector<Slot> slots_;
};

}  // namespace megatron

// Replica: this rank's share of one model replica, with everything a training step needs: parameters, stage, executor,
// arenas, optimizer. Built twice: with counting operations and no memory to learn the sizes (plan_memory), then for
// real.
//
// Knows micro-batches and steps; must not know data sets, files, checkpoints or logs.
#pragma once

#include <map>
#include <memory>
#include <span>

#include "base/timers.h"
#include "config/config.h"
#include "diagnostics/non_finite_report.h"
#include "model/family.h"
#include "optim/optimizer.h"
#include "parallel/gradient_reducer.h"
#include "pipeline/executor.h"
#include "train/compute.h"

namespace megatron {

/// Bytes of a rank by what they are for.
struct MemoryUse {
  std::size_t weights = 0, gradients = 0, optimizer = 0;
  std::size_t activations = 0;    ///< of all micro-batches in flight
  std::size_t communication = 0;  ///< gradients on their way to the previous stage, and staging of reductions
                                  ///< (comm/staging.h); MPI's own is not known
  std::size_t scratch = 0;        ///< temporaries, those of a recomputed layer among them, and the loss
  std::size_t kernels = 0;        ///< workspace of the backend's verbs
  std::size_t batch = 0;          ///< tokens, targets and positions of a step, training's and evaluation's in turn
  std::size_t snapshot = 0;       ///< what checkpoints are written from in the background (checkpoint.async)
  std::size_t host = 0;           ///< staging of communication and the snapshot, where the rest is a device's

  /// Without `host`.
  std::size_t total() const {
    return weights + gradients + optimizer + activations + communication + scratch + kernels + batch + snapshot;
  }
  /// Adds what is always the host's memory.
  void add_snapshot(std::size_t bytes, bool on_host_memory) { (on_host_memory ? snapshot : host) += bytes; }
  bool operator==(const MemoryUse&) const = default;
};

/// What the program's own arenas and buffers will hold on a rank, to the byte, and what a step computes and moves.
struct MemoryPlan : MemoryUse {
  std::int64_t parameters = 0;        ///< elements on this rank
  std::int64_t stage_parameters = 0;  ///< of the whole model, those that this stage counts, over its tensor ranks
  ExecutorMemory passes;              ///< activations by slot, gradients between stages
  std::vector<StagingPlan> staging;   ///< of each of the grid's groups
  double matmul_flops = 0, attention_flops = 0;  ///< one step, this rank
  double forward_and_backward_bytes = 0;         ///< sent by this rank in a step: tensor and pipeline traffic
  double gradient_bytes = 0;                     ///< sent by this rank in a step: gradient sums

  int slots() const { return static_cast<int>(passes.slots.size()); }
};

/// Micro-batches of one step on each data rank: of the largest step, where the batch grows.
std::int64_t micro_batches_per_step(const Config& config);
/// Every number of them that occurs, ascending.
std::vector<std::int64_t> micro_batch_counts(const Config& config);

/// Whether checkpoints are written in the background, which takes memory from the start.
bool saves_in_background(const Config& config);

/// Plays one training step of the rank at `at` without memory. The configuration must be resolved.
MemoryPlan plan_memory(const Config& config, const GridShape& shape, const GridCoordinates& at,
                       TransportKind transport);
/// With the transport that the configuration asks for.
MemoryPlan plan_memory(const Config& config, const GridShape& shape, const GridCoordinates& at);

class Replica {
 public:
  /// Allocates everything and initialises the parameters from train.seed. Grid and backend must outlive the replica;
  /// their staging and working memory is sized for this replica.
  Replica(const Config& config, const ProcessGrid& grid, Backend& backend);

  /// Forward and backward of one step, whose number of micro-batches is one of the run's: gradients are zeroed, the
  /// schedule is played, all partial sums are done. Gradients are the loss' times loss.scale. The sums of the loss'
  /// terms stay where they were computed: update() sums them up.
  void forward_backward(std::span<const MicroBatch> micro_batches, std::int64_t step, const LossScaling& loss,
                        Timers& timers);
  /// parallel.overlap_gradients from the next step on: changes when gradients are summed, not what comes out. With
  /// optimizer.distributed they are reduce-scattered during the backward either way.
  void overlap_gradients(bool overlap) { overlap_gradients_ = overlap; }
  /// Applies the gradients, unless they or the loss are not finite. Its loss is forward_backward()'s, the same on every
  /// rank. In a step the host waits for the device here alone.
  Optimizer::Update update(UpdateSettings settings, Timers& timers);
  /// After forward_backward with these micro-batches and an update that was skipped: what was not finite on this rank.
  /// Plays the step once more, by itself on each data rank and with another loss scale; gradients are not the step's
  /// afterwards. Collective.
  NonFiniteReport diagnose_non_finite_step(std::span<const MicroBatch> micro_batches, std::int64_t step,
                                           const LossScaling& loss, Timers& timers);
  /// The loss of a forward pass without dropout, the same on every rank. Its terms are valid until the next call.
  Losses evaluate(std::span<const MicroBatch> micro_batches, std::span<const double> loss_counts, Timers& timers);

  /// Complete: what the distributed optimizer still has on its way is waited for.
  const ParameterStore& store() const {
    gathers_->finish();
    return store_;
  }
  Optimizer& optimizer() { return *optimizer_; }
  const Optimizer& optimizer() const { return *optimizer_; }
  const Stage& stage() const { return *chunks_.front(); }  ///< the first of this rank's chunks
  /// Whether a stage of this rank reads a field of a batch.
  bool reads(const BatchField& field) const;
  const TensorRegion& region() const { return region_; }
  const MemoryPlan& plan() const { return plan_; }
  std::size_t scratch_high_water() const { return scratch_.high_water(); }
  /// What is held, and of arenas their high water: what the plan predicts, but for the batch, which is its owner's.
  MemoryUse used() const;
  ExecutorMemory passes_used() const { return executor_->used(); }  ///< the arenas' high water

  /// What this rank writes to a checkpoint: saved_parts().
  std::vector<TensorSlice> owned_slices() const;
  /// Everything this rank holds, copies included: what it reads. Without m and v: weights only. The values in pieces
  /// are the master's: Optimizer::set_values_from_master when they have been read.
  std::vector<TensorSlice> all_slices(bool with_optimizer) const;
  /// The gradients of the last step that this rank has in full after forward_backward (with the distributed optimizer
  /// of what it owns), copies included, as the pieces' values: the data ranks' sums, which an update leaves as they
  /// are.
  std::vector<TensorSlice> summed_gradients() const;

 private:
  void play_training(std::span<const MicroBatch> micro_batches, std::int64_t step, const LossScaling& loss,
                     GradientReducer* sums, Timers& timers);
  /// Sums the losses over the stages; on every rank of the pipeline then.
  void sum_losses_over_stages();
  /// Into loss_means_, which are still sums.
  void read_losses();
  bool finite_losses();
  /// Of a part of a parameter, by flat elements.
  TensorSlice piece(const Parameter& parameter, const FlatRange& part, bool with_optimizer) const;

  const Config& config_;
  const ProcessGrid& grid_;
  Backend& backend_;
  MemoryPlan plan_;
  bool overlap_gradients_;
  TensorRegion region_;
  ParameterStore store_;
  Stages chunks_;
  std::unique_ptr<PipelineExecutor> executor_;
  std::unique_ptr<GradientReducer> gradient_reducer_;
  std::unique_ptr<ParameterAllGather> gathers_;
  Buffer scratch_memory_;
  Arena scratch_;  // the losses at its bottom
  LossTerms terms_;
  Tensor loss_sums_;  // f64 [terms]: after a pass, what this rank's stages have added
  std::vector<double> loss_counts_, gradient_scales_, loss_means_;  // by term
  double loss_scale_ = 1;                                           // of the gradients
  std::unique_ptr<Optimizer> optimizer_;
  std::map<std::int64_t, std::vector<Action>> training_actions_;  // by the number of micro-batches
  std::vector<Action> evaluation_actions_;
};

}  // namespace megatron

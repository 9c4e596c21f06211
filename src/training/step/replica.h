// Replica: this rank's share of one model replica, with everything a training step needs: parameters, stage, executor,
// arenas, optimizer. Constructed twice: on a counting backend to learn the sizes (memory_plan.h), then for real.
//
// Knows micro-batches and steps; must not know data sets, files, checkpoints or logs.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <span>

#include "base/core/timers.h"
#include "config/schema/config.h"
#include "distributed/parallel/first_sums.h"
#include "distributed/parallel/gradient_reducer.h"
#include "distributed/parallel/gradient_ring.h"
#include "models/families/family.h"
#include "training/diagnostics/non_finite_report.h"
#include "training/optimizer/optimizer.h"
#include "training/optimizer/update_step.h"
#include "training/pipeline/executor.h"
#include "training/step/memory_plan.h"

namespace megatron {

/// Micro-batches of one step on each data rank: of the largest step, where the batch grows.
std::int64_t micro_batches_per_step(const Config& config);
/// Every number of them that occurs, ascending.
std::vector<std::int64_t> micro_batch_counts(const Config& config);

/// Result of a step's passes on this rank, which its update sums up over the ranks. The views are valid until the
/// replica's next pass; loss_counts only as long as the counts that forward_backward() was given.
struct StepSums {
  ConstTensor losses;                   ///< f64 [terms] on the device: what this rank's stages have added
  std::span<const double> loss_counts;  ///< by term: each mean is the sum over this
  double loss_scale = 1;                ///< the gradients': they are the loss' times this
  StepCounts routes = {};               ///< the routers' tally; absent without experts
};

class Replica {
 public:
  /// Allocates everything and initialises the parameters from train.seed. Grid and backend must outlive the replica;
  /// their staging and working memory is sized for this replica.
  Replica(const Config& config, const ProcessGrid& grid, Backend& backend)
      : Replica(config, grid, backend, family_of(config.model)) {}
  /// With the stages and the terms of the loss that `family` says.
  Replica(const Config& config, const ProcessGrid& grid, Backend& backend, const ModelFamily& family);
  /// On a counting backend and grid, to be played for its sizes: its arenas have no memory and no limit. `counts` of
  /// micro-batches are those of further steps, which are not played but need memory.
  struct Unlimited {
    std::vector<std::int64_t> counts = {};
  };
  Replica(const Config& config, const ProcessGrid& grid, Backend& backend, const ModelFamily& family,
          const Unlimited& played);

  /// Forward and backward of one step, whose number of micro-batches is one of the run's: the schedule is
  /// played, gradients begin anew, all partial sums are done. Gradients are the loss' times loss.scale. The result is
  /// for update().
  StepSums forward_backward(std::span<const MicroBatch> micro_batches, std::int64_t step, const LossScaling& loss,
                            Timers& timers);
  /// parallel.overlap_gradients from the next step on: changes when gradients are summed, not what comes out. With
  /// optimizer.share other than "none" they are reduce-scattered during the backward either way.
  void overlap_gradients(bool overlap) { overlap_gradients_ = overlap; }
  struct Update {
    Losses loss;               ///< the terms are valid until the next step or evaluation
    double gradient_norm = 0;  ///< norm of the whole gradient of the loss (not scaled), before clipping
    bool skipped = false;      ///< a loss or the gradient was not finite on some rank: nothing was changed
    bool bad_loss = false;     ///< a loss was
    /// All ranks' choices [layers with experts, experts + 1] (TallyRoutesArgs). Valid until the next step.
    std::span<const double> choices = {};
    double least_gap = 0;  ///< among the choices that this rank made
  };
  /// Applies the gradients of the step whose sums these are, unless they or the loss are not finite. Its loss is the
  /// same on every rank. settings.gradient_scale is ignored: it is the sums'. In a step the host waits for the device
  /// here alone.
  Update update(const StepSums& sums, UpdateSettings settings, Timers& timers);
  /// Norm of all trained parameters of the model (UpdateStep::parameter_norm). Collective; waits for the device.
  double parameter_norm(Timers& timers) {
    const Timers::Scope scope(timers, Section::optimizer);
    return update_step_->parameter_norm();
  }
  /// After forward_backward with these micro-batches and an update that was skipped: what was not finite on this rank.
  /// Plays the step once more, with another loss scale and without the sums over copies: by itself on each data rank,
  /// but for what expert ranks send each other in a pass. Gradients are not the step's afterwards. Collective.
  NonFiniteReport diagnose_non_finite_step(std::span<const MicroBatch> micro_batches, std::int64_t step,
                                           const LossScaling& loss, Timers& timers);
  /// The loss of a forward pass without dropout, the same on every rank. Its terms are valid until the next call. The
  /// ranks of the last stage also set `results`, if there are any: one for each micro-batch.
  Losses evaluate(std::span<const MicroBatch> micro_batches, std::span<const double> loss_counts, Timers& timers,
                  std::span<const TargetResults> results = {});
  /// A forward pass without dropout for what each target of these micro-batches, at most micro_batches_per_step(), is
  /// asked for: on the ranks of the last stage.
  void score(std::span<const MicroBatch> micro_batches, std::span<const TargetResults> results, Timers& timers);

  /// Returns when the values that the distributed optimizer has on their way have arrived. Collective over the copies.
  void wait_for_values() { gathers_->finish(); }
  /// Its values are complete after wait_for_values(), until the next update, but those of layers that copies divide:
  /// values_of() what this rank owns.
  const ParameterStore& store() const { return store_; }
  Optimizer& optimizer() { return *optimizer_; }
  const Optimizer& optimizer() const { return *optimizer_; }
  const Stage& stage() const { return *chunks_.front(); }  ///< the first of this rank's chunks
  /// Whether a stage of this rank reads a field of a batch.
  bool reads(const BatchField& field) const;
  const TensorRegion& region() const { return region_; }
  const MemoryPlan& plan() const { return *plan_; }
  std::size_t scratch_high_water() const { return scratch_.high_water(); }
  /// Memory that is held, for arenas their high water: what the plan predicts, but for the batch, which is its owner's.
  MemoryUse used() const;
  ExecutorMemory passes_used() const { return executor_->used(); }  ///< the arenas' high water
  /// Memory that the passes of all the run's steps and evaluations take. The replica must have played its largest step.
  ExecutorMemory passes_needed() const;

  /// Slices that this rank writes to a checkpoint: saved_parts().
  std::vector<TensorSlice> owned_slices() const;
  /// Everything this rank holds, copies included: what it reads. Without the optimizer's states: weights only. The
  /// values in slices are the master's: wait_for_values() before they are set, Optimizer::set_values_from_master
  /// afterwards.
  std::vector<TensorSlice> all_slices(bool with_optimizer) const;
  /// The gradients of the last step that this rank has in full after forward_backward (with the distributed optimizer
  /// of what it owns), copies included, as the slices' values: the sums over the copies, which an update leaves as they
  /// are.
  std::vector<TensorSlice> summed_gradients() const;

 private:
  Replica(const Config& config, const ProcessGrid& grid, Backend& backend, const ModelFamily& family,
          std::optional<MemoryPlan> plan);
  void allocate_arenas();
  std::vector<const std::vector<Action>*> action_lists() const;
  void play_training(std::span<const MicroBatch> micro_batches, std::int64_t step, const LossScaling& loss,
                     GradientReducer* sums, Timers& timers);
  /// Plays the step again, with no sums over copies: this rank's own gradients that have a bad number.
  BadTensors replay_gradients(std::span<const MicroBatch> micro_batches, std::int64_t step, const LossScaling& loss,
                              Timers& timers);
  /// Sums the losses over the stages; on every rank of the pipeline then.
  void sum_losses_over_stages();
  PassSettings evaluation_settings();
  /// Moves each router's choice bias by the last step's choices.
  void balance_experts();
  /// Into loss_values_, as sums.
  void read_losses();
  bool finite_losses();
  /// A part of a parameter as a slice, by flat elements.
  TensorSlice slice(const Parameter& parameter, const FlatRange& part, bool with_optimizer) const;
  /// The same for a state of the model, by its elements.
  TensorSlice slice(const ModelState& state, const FlatRange& part) const;

  const Config& config_;
  const ProcessGrid& grid_;
  Backend& backend_;
  std::optional<MemoryPlan> plan_;  // absent: arenas are unlimited
  bool overlap_gradients_;
  TensorRegion region_;
  ParameterStore store_;
  Stages chunks_;
  std::unique_ptr<PipelineExecutor> executor_;
  std::unique_ptr<FirstSums> first_sums_;
  std::unique_ptr<GradientReducer> gradient_reducer_;
  std::unique_ptr<GradientRing> gradient_ring_;  // if copies divide layers' gradients
  std::unique_ptr<ParameterAllGather> gathers_;
  Buffer scratch_memory_;
  Arena scratch_;  // the losses at its bottom, and what routers count
  LossTerms terms_;
  Tensor loss_sums_;                                   // f64 [terms]: after a pass, what this rank's stages have added
  std::vector<double> gradient_scales_, loss_values_;  // by term
  std::optional<RouteTally> routes_;                   // if the model has experts: as the losses
  std::unique_ptr<Optimizer> optimizer_;
  std::unique_ptr<UpdateStep> update_step_;
  std::map<std::int64_t, std::vector<Action>> training_actions_;  // by the number of micro-batches
  std::vector<Action> evaluation_actions_;
};

}  // namespace megatron

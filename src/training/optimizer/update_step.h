// UpdateStep: one update of all ranks, with what they must know of each other first: the norm of the whole model's
// gradient, the terms of its loss, whether all of it is finite, and counts of the step, if there are any. These form
// one vector, summed over the model and then over its copies; where ranks share experts out, the norm's number is
// summed over these in between. Owns the vector and the results, which stay on the device where the optimizer reads
// them; the host reads them in one transfer per step. Takes sums and counts as numbers.
#pragma once

#include <span>
#include <vector>

#include "distributed/comm/process_grid.h"
#include "training/optimizer/optimizer.h"

namespace megatron {

/// Results that all ranks know after a step.
struct StepVerdict {
  std::span<const double> loss_sums;  ///< f64 [terms], summed over stages and copies; valid until the next step
  double gradient_norm = 0;           ///< norm of the whole gradient (without its scale), before clipping
  bool skipped = false;   ///< a loss, the norm, or some rank's copy of a gradient was not finite: nothing was changed
  bool bad_loss = false;  ///< on some rank a loss was: then skipped, and no loss scale would have helped
  std::span<const double> counts = {};  ///< f64 [counts], summed as the losses; valid until the next step
  double local_router_gap = 0;          ///< the least among the choices that this rank made
};

/// Numbers that a step adds up in addition to its losses: integers, so that the order of their sum does not matter.
struct StepCounts {
  ConstTensor counts;            ///< f64 [counts], the same on all tensor ranks
  ConstTensor local_router_gap;  ///< f64 [1]: only to be read by this rank's host
};

class UpdateStep {
 public:
  /// `terms`: of the loss, 0 for none; `counts`: of StepCounts. All references must outlive this.
  UpdateStep(Optimizer& optimizer, const ProcessGrid& grid, std::size_t terms, Device& device, Ops& ops,
             std::size_t counts = 0);

  /// One update from the store's gradients, which must be summed over all partial axes. `losses`: f64 [terms], what
  /// this rank adds to each sum, the same on all tensor ranks, 0 on stages that have none; absent without terms. If one
  /// of them is not finite on some rank nothing is changed on any. Collective over the grid; the flags are the same on
  /// every rank. The device decides by itself whether to skip; what it decided is read once, while it updates.
  StepVerdict run(const UpdateSettings& settings, ConstTensor losses, const StepCounts& counted = {});
  /// L2 norm of the model's trained parameters, each counted once, of the masters in f32. The same on every rank.
  /// Collective over the grid; waits for the device.
  double parameter_norm();
  /// f64 [counts] on the device: the summed counts of the last step, for operations that are called before the next.
  ConstTensor counts() const { return tensors_.counts; }

  std::size_t bytes() const { return memory_.bytes(); }
  /// Numbers that are summed together.
  static constexpr std::int64_t sums(std::size_t terms, std::size_t counts = 0) {
    return static_cast<std::int64_t>(2 + 2 * terms + counts);
  }
  /// On the device, of a step with these numbers of loss terms and counts.
  static std::size_t bytes(std::size_t terms, std::size_t counts = 0);

 private:
  /// f32 numbers on the device, by their places.
  struct Decision {
    float norm, skip, bad_loss, factor;
  };
  struct Tensors {
    Tensor sums;    // f64 [2 + 2 · terms + counts]: squares of counted gradients and of copies, one tensor rank's
                    // losses, all's, one tensor rank's counts
    Tensor counts;  // a part of the sums; absent without counts
    Tensor model_square_sum;  // f64 [1], of one copy of the model
    Tensor with_model;        // the sums and it, which lie side by side
    Tensor local_router_gap;  // f64 [1], with counts
    Tensor decision;          // a Decision; next to the sums, so that one transfer tells of both
  };
  static Tensors place(Arena& arena, std::size_t terms, std::size_t counts);
  Tensor number(std::size_t offset) const;  ///< one number of the decision
  void add_squares();
  bool norm_over_experts() const;
  void sum_up(ConstTensor losses, const StepCounts& counted);
  void decide(double gradient_scale);
  StepVerdict read();
  /// Tells a check of collectives that all ranks have decided the same.
  void expect_one_verdict(const StepVerdict& verdict) const;

  Optimizer& optimizer_;
  const ProcessGrid& grid_;
  Device& device_;
  Ops& ops_;
  std::int64_t terms_;
  Buffer memory_, here_;
  Tensors tensors_;
  std::size_t read_bytes_;  // bytes that are read, from the start of the memory
  std::vector<double> loss_sums_, counts_;
};

}  // namespace megatron

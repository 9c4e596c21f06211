// UpdateStep: one update of all ranks, with what they must know of each other first: the norm of the whole model's
// gradient, the terms of its loss, and whether all of it is finite. One vector, summed over the model and then over its
// copies.
//
// Owns that vector and what follows from it, which stays on the device where the optimizer reads it; the host learns of
// it in one transfer per step. Takes a term's sum as a number; must not know what it is a mean of.
#pragma once

#include <span>
#include <vector>

#include "comm/process_grid.h"
#include "optim/optimizer.h"

namespace megatron {

/// What all ranks know after a step.
struct StepVerdict {
  std::span<const double> loss_sums;  ///< f64 [terms], summed over stages and copies; valid until the next step
  double gradient_norm = 0;           ///< of the whole gradient (without its scale), before clipping
  bool skipped = false;   ///< a loss, the norm, or some rank's copy of a gradient was not finite: nothing was changed
  bool bad_loss = false;  ///< on some rank a loss was: then skipped, and no loss scale would have helped
};

class UpdateStep {
 public:
  /// `terms`: of the loss, 0 for none. All references must outlive this.
  UpdateStep(Optimizer& optimizer, const ProcessGrid& grid, std::size_t terms, Device& device, Ops& ops);

  /// One update from the store's gradients, which must be summed over all partial axes. `losses`: f64 [terms], what
  /// this rank adds to each sum, the same on all tensor ranks, 0 on stages that have none; absent without terms. If one
  /// of them is not finite on some rank nothing is changed on any. Collective over the grid; the flags are the same on
  /// every rank. The device decides by itself whether to skip; what it decided is read once, while it updates.
  StepVerdict run(const UpdateSettings& settings, ConstTensor losses);

  std::size_t bytes() const { return memory_.bytes(); }
  /// Numbers that are summed together.
  static constexpr std::int64_t sums(std::size_t terms) { return static_cast<std::int64_t>(2 + 2 * terms); }
  /// On the device, of a step with this number of loss terms.
  static std::size_t bytes(std::size_t terms);

 private:
  /// f32 numbers on the device, by their places.
  struct Decision {
    float norm, skip, bad_loss, factor, unused_norm, unused_factor, unused_skip;
  };
  struct Tensors {
    Tensor sums;  // f64 [2 + 2 · terms]: squares of counted gradients and of copies, one tensor rank's losses, all's
    Tensor decision;          // of Decision; next to the sums, so that one transfer tells of both
    Tensor model_square_sum;  // f64 [1], of one model replica
    Tensor zero;              // f64 [1]
  };
  static Tensors place(Arena& arena, std::size_t terms);
  Tensor number(std::size_t offset) const;  ///< of the decision
  void sum_up(ConstTensor losses);
  void decide(double gradient_scale);
  StepVerdict read();

  Optimizer& optimizer_;
  const ProcessGrid& grid_;
  Device& device_;
  Ops& ops_;
  std::int64_t terms_;
  Buffer memory_, here_;
  Tensors tensors_;
  std::size_t read_bytes_;  // of the memory, from its start
  std::vector<double> loss_sums_;
};

}  // namespace megatron

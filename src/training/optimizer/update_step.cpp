#include "training/optimizer/update_step.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstring>
#include <limits>

#include "distributed/comm/meanings.h"
#include "distributed/comm/poll_backoff.h"

namespace megatron {

UpdateStep::Tensors UpdateStep::place(Arena& arena, std::size_t terms, std::size_t counts) {
  const std::int64_t all = sums(terms, counts);
  Tensors tensors;
  tensors.with_model = arena.allocate("sums of a step", {all + 1}, DType::f64);
  tensors.sums = tensors.with_model.slice(0, 0, all);
  tensors.model_square_sum = tensors.with_model.slice(0, all, 1);
  if (counts > 0) {
    tensors.counts = tensors.sums.slice(0, sums(terms), static_cast<std::int64_t>(counts));
    tensors.local_router_gap = arena.allocate("this rank's router gap", {1}, DType::f64);
  }
  tensors.decision = arena.allocate("decision", {sizeof(Decision) / sizeof(float)}, DType::f32);
  return tensors;
}

std::size_t UpdateStep::bytes(std::size_t terms, std::size_t counts) {
  Arena sizing("update step");
  place(sizing, terms, counts);
  return sizing.high_water();
}

UpdateStep::UpdateStep(Optimizer& optimizer, const ProcessGrid& grid, std::size_t terms, Device& device, Ops& ops,
                       std::size_t counts)
    : optimizer_(optimizer),
      grid_(grid),
      device_(device),
      ops_(ops),
      terms_(static_cast<std::int64_t>(terms)),
      memory_(device, bytes(terms, counts)),
      loss_sums_(terms),
      counts_(counts) {
  Arena arena("update step", memory_);
  tensors_ = place(arena, terms, counts);
  const auto* const end = static_cast<const std::byte*>(tensors_.decision.data()) + tensors_.decision.bytes();
  read_bytes_ = static_cast<std::size_t>(end - memory_.data());
  here_ = Buffer(device.pinned(), read_bytes_);
}

Tensor UpdateStep::number(std::size_t offset) const {
  return tensors_.decision.slice(0, static_cast<std::int64_t>(offset / sizeof(float)), 1);
}

// Whether the norm needs other ranks' experts by a sum of their own. With shards the one over all copies has them.
bool UpdateStep::norm_over_experts() const {
  return grid_.shape().expert > 1 && !optimizer_.sharded();
}

// Each of the ranks that share experts out counts its own, and the first counts what is the same on all. Sets of copies
// have the same parts, which one of them counts, and the others look for bad numbers in.
void UpdateStep::add_squares() {
  if (grid_.replicas().rank() == 0) {
    const Tensor counted = tensors_.sums.slice(0, 0, 1);
    const bool first = grid_.expert().rank() == 0;
    optimizer_.add_counted_squares(CopyGroup::experts, counted);
    if (norm_over_experts() && !first) ops_.copy(counted, tensors_.model_square_sum);
    optimizer_.add_counted_squares(CopyGroup::dense, counted);
    if (norm_over_experts() && first) ops_.copy(counted, tensors_.model_square_sum);
  }
  const Tensor seen = tensors_.sums.slice(0, 1, 1);
  if (grid_.replicas().rank() > 0) {
    optimizer_.add_counted_squares(CopyGroup::experts, seen);
    optimizer_.add_counted_squares(CopyGroup::dense, seen);
  }
  optimizer_.add_squares_of_copies(seen);
}

void UpdateStep::sum_up(ConstTensor losses, const StepCounts& counted) {
  const Tensor sums = tensors_.sums;
  ops_.fill(tensors_.with_model, 0);
  add_squares();
  if (terms_ > 0) grid_.tensor().expects(losses, kLossSums);
  if (tensors_.counts) grid_.tensor().expects(counted.counts, kRouteCounts);
  if (terms_ > 0) {
    if (grid_.tensor().rank() == 0) ops_.copy(losses, sums.slice(0, 2, terms_));
    ops_.copy(losses, sums.slice(0, 2 + terms_, terms_));
  }
  if (tensors_.counts) {
    if (grid_.tensor().rank() == 0) ops_.copy(counted.counts, tensors_.counts);
    ops_.copy(counted.local_router_gap, tensors_.local_router_gap);
  }
  grid_.model().all_reduce(norm_over_experts() ? tensors_.with_model : sums, kModelSums);
  if (norm_over_experts()) {
    grid_.expert().all_reduce(tensors_.model_square_sum, kExpertSquares);
  } else {
    ops_.copy(sums.slice(0, 0, 1), tensors_.model_square_sum);
  }
  grid_.copies().all_reduce(sums, kCopySums);
}

// Norm, factor and whether to skip, on the device. Without shards copies have the same gradient, whose norm is in
// their replica's sum; where memory or a network fails they may not, so that skipping follows from all ranks' sums.
void UpdateStep::decide(double gradient_scale) {
  const Tensor sums = tensors_.sums;
  ops_.judge_step({.square_sum = optimizer_.sharded() ? sums.slice(0, 0, 1) : tensors_.model_square_sum,
                   .all_square_sum = sums.slice(0, 0, 1),
                   .uncounted_square_sum = sums.slice(0, 1, 1),
                   .losses = sums.slice(0, 2 + terms_, terms_),
                   .maximum = static_cast<float>(optimizer_.clip_norm()),
                   .loss_scale = gradient_scale,
                   .norm = number(offsetof(Decision, norm)),
                   .factor = number(offsetof(Decision, factor)),
                   .skip = number(offsetof(Decision, skip)),
                   .bad_loss = number(offsetof(Decision, bad_loss))});
}

StepVerdict UpdateStep::run(const UpdateSettings& settings, ConstTensor losses, const StepCounts& counted) {
  internal_check(losses.empty() ? terms_ == 0 : losses.elements() == terms_, "the sums of other terms of the loss",
                 losses.shape(), terms_);
  internal_check(counted.counts.elements() == tensors_.counts.elements(), "counts of another number",
                 counted.counts.shape(), tensors_.counts.shape());
  optimizer_.wait_for_values();
  sum_up(losses, counted);
  decide(settings.gradient_scale);
  const Ticket read = device_.start_copy_to_host(here_.data(), memory_.data(), read_bytes_, device_.mark());
  optimizer_.start_update(settings, number(offsetof(Decision, factor)), number(offsetof(Decision, skip)));
  // The step's one wait for the device, which has the whole update to do meanwhile. Communication is moved along, and
  // throws what its network has found wrong.
  for (PollBackoff backoff; !device_.complete(read); backoff.rest()) grid_.copies().progress();
  const StepVerdict verdict = this->read();
  expect_one_verdict(verdict);
  if (!verdict.skipped) optimizer_.count_update();
  return verdict;
}

void UpdateStep::expect_one_verdict(const StepVerdict& verdict) const {
  if (!grid_.world().checked()) return;
  std::vector<double> numbers(verdict.loss_sums.begin(), verdict.loss_sums.end());
  numbers.insert(numbers.end(), {verdict.gradient_norm, verdict.skipped ? 1.0 : 0.0, verdict.bad_loss ? 1.0 : 0.0});
  // There are many NaNs.
  for (double& number : numbers) number = std::isfinite(number) ? number : std::numeric_limits<double>::infinity();
  grid_.world().expects(ConstTensor(numbers.data(), {static_cast<std::int64_t>(numbers.size())}, DType::f64), kVerdict);
}

// Masters are counted as gradients are. Their sum takes the place of the gradients', which has no use after a step.
double UpdateStep::parameter_norm() {
  const Tensor total = tensors_.model_square_sum;
  optimizer_.wait_for_values();  // the sum over the copies must not overtake their gathers
  ops_.fill(total, 0);
  if (grid_.replicas().rank() == 0) {
    optimizer_.add_counted_squares_of_masters(CopyGroup::experts, total);
    if (!norm_over_experts() || grid_.expert().rank() == 0) {
      optimizer_.add_counted_squares_of_masters(CopyGroup::dense, total);
    }
  }
  grid_.model().all_reduce(total, kModelSums);
  if (norm_over_experts()) grid_.expert().all_reduce(total, kExpertSquares);
  if (optimizer_.sharded()) grid_.copies().all_reduce(total, kCopySums);
  double square_sum = 0;
  device_.copy_to_host(&square_sum, total.data(), total.bytes());
  return std::sqrt(square_sum);
}

StepVerdict UpdateStep::read() {
  Decision decision{};
  std::memcpy(&decision, here_.data() + read_bytes_ - sizeof decision, sizeof decision);
  const auto* const sums = reinterpret_cast<const double*>(here_.data());
  std::copy_n(sums + 2, loss_sums_.size(), loss_sums_.begin());
  StepVerdict verdict{loss_sums_, decision.norm, decision.skip != 0, decision.bad_loss != 0};
  if (counts_.empty()) return verdict;
  std::copy_n(sums + UpdateStep::sums(loss_sums_.size()), counts_.size(), counts_.begin());
  const auto* const gap = static_cast<const std::byte*>(tensors_.local_router_gap.data());
  std::memcpy(&verdict.local_router_gap, here_.data() + (gap - memory_.data()), sizeof verdict.local_router_gap);
  verdict.counts = counts_;
  return verdict;
}

}  // namespace megatron

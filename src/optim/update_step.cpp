#include "optim/update_step.h"

#include <cstddef>
#include <cstring>

#include "comm/poll_backoff.h"

namespace megatron {

UpdateStep::Tensors UpdateStep::place(Arena& arena, std::size_t terms) {
  Tensors tensors;
  tensors.sums = arena.allocate("sums of a step", {sums(terms)}, DType::f64);
  tensors.decision = arena.allocate("decision", {sizeof(Decision) / sizeof(float)}, DType::f32);
  tensors.model_square_sum = arena.allocate("square sum of the model", {1}, DType::f64);
  tensors.zero = arena.allocate("zero", {1}, DType::f64);
  return tensors;
}

std::size_t UpdateStep::bytes(std::size_t terms) {
  Arena sizing("update step");
  place(sizing, terms);
  return sizing.high_water();
}

UpdateStep::UpdateStep(Optimizer& optimizer, const ProcessGrid& grid, std::size_t terms, Device& device, Ops& ops)
    : optimizer_(optimizer),
      grid_(grid),
      device_(device),
      ops_(ops),
      terms_(static_cast<std::int64_t>(terms)),
      memory_(device, bytes(terms)),
      loss_sums_(terms) {
  Arena arena("update step", memory_);
  tensors_ = place(arena, terms);
  ops.fill(tensors_.zero, 0);
  const auto* const end = static_cast<const std::byte*>(tensors_.decision.data()) + tensors_.decision.bytes();
  read_bytes_ = static_cast<std::size_t>(end - memory_.data());
  here_ = Buffer(device.pinned(), read_bytes_);
}

Tensor UpdateStep::number(std::size_t offset) const {
  return tensors_.decision.slice(0, static_cast<std::int64_t>(offset / sizeof(float)), 1);
}

void UpdateStep::sum_up(ConstTensor losses) {
  const Tensor sums = tensors_.sums;
  ops_.fill(sums, 0);
  optimizer_.add_square_sums(sums.slice(0, 0, 1), sums.slice(0, 1, 1));
  if (terms_ > 0) {
    if (grid_.tensor().rank() == 0) ops_.copy(losses, sums.slice(0, 2, terms_));
    ops_.copy(losses, sums.slice(0, 2 + terms_, terms_));
  }
  grid_.model().all_reduce(sums);
  ops_.copy(sums.slice(0, 0, 1), tensors_.model_square_sum);
  grid_.copies().all_reduce(sums);
}

// Norm, factor and whether to skip, on the device. Without shards copies have the same gradient, whose norm is in
// their replica's sum; where memory or a network fails they may not, so that skipping follows from all ranks' sums.
void UpdateStep::decide(double gradient_scale) {
  const Tensor sums = tensors_.sums, unused_norm = number(offsetof(Decision, unused_norm)),
               unused_factor = number(offsetof(Decision, unused_factor)),
               unused_skip = number(offsetof(Decision, unused_skip)), skip = number(offsetof(Decision, skip)),
               bad_loss = number(offsetof(Decision, bad_loss));
  ops_.clip_factor({.square_sum = optimizer_.shards() > 1 ? sums.slice(0, 0, 1) : tensors_.model_square_sum,
                    .maximum = static_cast<float>(optimizer_.clip_norm()),
                    .loss_scale = gradient_scale,
                    .norm = number(offsetof(Decision, norm)),
                    .factor = number(offsetof(Decision, factor)),
                    .skip = unused_skip});
  const auto check = [&](ConstTensor square_sum, ConstTensor finite, Tensor bad) {
    ops_.clip_factor({.square_sum = square_sum,
                      .copies_square_sum = finite,
                      .loss_scale = gradient_scale,
                      .norm = unused_norm,
                      .factor = unused_factor,
                      .skip = bad});
  };
  check(sums.slice(0, 0, 1), sums.slice(0, 1, 1), skip);
  ops_.fill(bad_loss, 0);
  for (std::int64_t i = 0; i < terms_; ++i) {
    check(tensors_.zero, sums.slice(0, 2 + terms_ + i, 1), unused_skip);
    ops_.add(unused_skip, bad_loss);
  }
  ops_.add(bad_loss, skip);
}

StepVerdict UpdateStep::run(const UpdateSettings& settings, ConstTensor losses) {
  internal_check(losses.empty() ? terms_ == 0 : losses.elements() == terms_, "the sums of other terms of the loss");
  optimizer_.wait_for_values();
  sum_up(losses);
  decide(settings.gradient_scale);
  const Ticket read = device_.start_copy_to_host(here_.data(), memory_.data(), read_bytes_, device_.mark());
  optimizer_.start_update(settings, number(offsetof(Decision, factor)), number(offsetof(Decision, skip)));
  // The step's one wait for the device, which has the whole update to do meanwhile. Communication is moved along, and
  // throws what its network has found wrong.
  for (PollBackoff backoff; !device_.complete(read); backoff.rest()) grid_.copies().progress();
  const StepVerdict verdict = this->read();
  if (!verdict.skipped) optimizer_.count_update();
  return verdict;
}

StepVerdict UpdateStep::read() {
  Decision decision{};
  std::memcpy(&decision, here_.data() + read_bytes_ - sizeof decision, sizeof decision);
  std::memcpy(loss_sums_.data(), here_.data() + 2 * sizeof(double), loss_sums_.size() * sizeof(double));
  return {loss_sums_, decision.norm, decision.skip != 0, decision.bad_loss != 0};
}

}  // namespace megatron

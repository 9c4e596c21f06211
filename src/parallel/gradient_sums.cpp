#include "parallel/gradient_sums.h"

namespace megatron {

GradientSums::GradientSums(const ProcessGrid& grid, const ParameterStore& store) : grid_(grid), store_(store) {
  for (const Tensor& gradients : store.gradient_buckets()) buckets_.push_back({gradients, {}});
  not_started_ = buckets_.size();
}

void GradientSums::ready_from(std::int64_t element) {
  const auto* ready = store_.gradients().slice(0, element, store_.flat_elements() - element).as<float>();
  while (not_started_ > 0 && buckets_[not_started_ - 1].gradients.as<float>() >= ready) {
    Bucket& bucket = buckets_[--not_started_];
    bucket.sum = grid_.data().start_all_reduce(bucket.gradients);
  }
  progress();
}

void GradientSums::finish(Ops& ops, Arena& scratch) {
  ready_from(0);
  for (std::size_t i = buckets_.size(); i-- > 0;) buckets_[i].sum.wait();
  not_started_ = buckets_.size();
  sum_over_tensor_ranks(ops, scratch);
  if (grid_.embedding().size() == 1) return;
  for (const Parameter& parameter : store_.all()) {
    if (parameter.pipeline == Placement::partial) grid_.embedding().all_reduce(parameter.gradient);
  }
}

// Norms and biases are many and small: one message for all of them.
void GradientSums::sum_over_tensor_ranks(Ops& ops, Arena& scratch) const {
  std::int64_t elements = 0;
  for (const Parameter& parameter : store_.all()) {
    if (parameter.tensor == Placement::partial) elements += parameter.elements();
  }
  if (elements == 0 || grid_.tensor().size() == 1) return;
  const ArenaScope scope(scratch);
  const Tensor packed = scratch.allocate("packed partial gradients", {elements}, DType::f32);
  const auto for_each = [&](auto&& move) {
    std::int64_t first = 0;
    for (const Parameter& parameter : store_.all()) {
      if (parameter.tensor != Placement::partial) continue;
      const std::int64_t count = parameter.elements();
      move(parameter.gradient.view({count}), packed.slice(0, first, count));
      first += count;
    }
  };
  for_each([&](Tensor gradient, Tensor part) { ops.copy(gradient, part); });
  grid_.tensor().all_reduce(packed);
  for_each([&](Tensor gradient, Tensor part) { ops.copy(part, gradient); });
}

}  // namespace megatron

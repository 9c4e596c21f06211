#include "parallel/gradient_sums.h"

namespace megatron {

GradientSums::GradientSums(const ProcessGrid& grid, const ParameterStore& store)
    : grid_(grid), store_(store), sums_(store.buckets().size()), not_started_(sums_.size()) {
  const std::vector<FlatRange> owned = store.owned_by(grid.data().rank());
  for (const Parameter& parameter : store.all()) {
    const std::vector<FlatRange> parts = ParameterStore::parts_in(parameter, owned);
    if (parameter.tensor == Placement::partial && grid.tensor().size() > 1) {
      over_tensor_.insert(over_tensor_.end(), parts.begin(), parts.end());
      packed_elements_ += parameter.elements();
    }
    if (parameter.pipeline == Placement::partial && grid.embedding().size() > 1) {
      over_stages_.insert(over_stages_.end(), parts.begin(), parts.end());
    }
  }
}

void GradientSums::ready_from(std::int64_t element) {
  while (not_started_ > 0 && store_.buckets()[not_started_ - 1].first >= element) {
    const std::size_t bucket = --not_started_;
    const FlatRange whole = store_.buckets()[bucket];
    const Tensor gradients = store_.gradients().slice(0, whole.first, whole.count);
    if (store_.shards() == 1) {
      sums_[bucket] = grid_.data().start_all_reduce(gradients);
    } else {
      const FlatRange part = store_.part_of(bucket, grid_.data().rank());
      sums_[bucket] = grid_.data().start_reduce_scatter(gradients, store_.gradients().slice(0, part.first, part.count));
    }
  }
  grid_.data().progress();
}

void GradientSums::finish(Ops& ops, Arena& scratch) {
  ready_from(0);
  for (std::size_t i = sums_.size(); i-- > 0;) sums_[i].wait();
  not_started_ = sums_.size();
  sum_over_tensor_ranks(ops, scratch);
  for (const FlatRange& range : over_stages_) {
    grid_.embedding().all_reduce(store_.gradients().slice(0, range.first, range.count));
  }
}

// Norms and biases are many and small: one message for all of them.
void GradientSums::sum_over_tensor_ranks(Ops& ops, Arena& scratch) const {
  if (packed_elements_ == 0) return;
  const ArenaScope scope(scratch);
  // The whole of it on every data rank, whatever part it owns: memory is then the same for all.
  const Tensor memory = scratch.allocate("packed partial gradients", {packed_elements_}, DType::f32);
  std::int64_t elements = 0;
  for (const FlatRange& range : over_tensor_) {
    ops.copy(store_.gradients().slice(0, range.first, range.count), memory.slice(0, elements, range.count));
    elements += range.count;
  }
  const Tensor packed = memory.slice(0, 0, elements);
  grid_.tensor().all_reduce(packed);
  std::int64_t first = 0;
  for (const FlatRange& range : over_tensor_) {
    ops.copy(packed.slice(0, first, range.count), store_.gradients().slice(0, range.first, range.count));
    first += range.count;
  }
}

}  // namespace megatron

#include "parallel/gradient_reducer.h"

namespace megatron {

GradientReducer::GradientReducer(const ProcessGrid& grid, const ParameterStore& store, int data_rank)
    : grid_(grid),
      store_(store),
      sums_(store.buckets().size()),
      not_started_(sums_.size()),
      tensor_{grid.tensor(), {}, {}},
      kv_replicas_{grid.kv_replicas(), {}, {}},
      stages_{grid.embedding(), {}, {}} {
  const std::vector<FlatRange> owned = store.owned_by(data_rank);
  for (const Parameter& parameter : store.all()) {
    const std::vector<FlatRange> parts = ParameterStore::parts_in(parameter, owned);
    if (parameter.tensor == Placement::partial) tensor_.add(parameter, parts);
    if (parameter.tensor == Placement::kv_replicated) kv_replicas_.add(parameter, parts);
    if (parameter.pipeline == Placement::partial) stages_.add(parameter, parts);
  }
}

void GradientReducer::Axis::add(const Parameter& parameter, const std::vector<FlatRange>& parts) {
  if (group.size() == 1) return;
  const bool vector = parameter.global_shape.rank() == 1;
  if (vector) vector_elements += parameter.elements();
  std::vector<FlatRange>& ranges = vector ? vectors : matrices;
  for (const FlatRange& part : parts) {
    // Key and value lie side by side: one message.
    if (!ranges.empty() && ranges.back().end() == part.first) {
      ranges.back().count += part.count;
    } else {
      ranges.push_back(part);
    }
  }
}

void GradientReducer::reduce_from(std::int64_t element) {
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

void GradientReducer::finish(Ops& ops, Arena& scratch) {
  reduce_from(0);
  for (std::size_t i = sums_.size(); i-- > 0;) sums_[i].wait();
  not_started_ = sums_.size();
  sum_copies(ops, scratch);
}

void GradientReducer::sum_copies(Ops& ops, Arena& scratch) const {
  for (const Axis* axis : {&tensor_, &kv_replicas_, &stages_}) axis->sum(store_.gradients(), ops, scratch);
}

void GradientReducer::Axis::sum(Tensor gradients, Ops& ops, Arena& scratch) const {
  for (const FlatRange& range : matrices) group.all_reduce(gradients.slice(0, range.first, range.count));
  if (vector_elements == 0) return;
  const ArenaScope scope(scratch);
  const Tensor memory = scratch.allocate("packed partial gradients", {vector_elements}, DType::f32);
  std::int64_t elements = 0;
  for (const FlatRange& range : vectors) {
    ops.copy(gradients.slice(0, range.first, range.count), memory.slice(0, elements, range.count));
    elements += range.count;
  }
  const Tensor packed = memory.slice(0, 0, elements);
  group.all_reduce(packed);
  std::int64_t first = 0;
  for (const FlatRange& range : vectors) {
    ops.copy(packed.slice(0, first, range.count), gradients.slice(0, range.first, range.count));
    first += range.count;
  }
}

}  // namespace megatron

#include "distributed/parallel/gradient_reducer.h"

#include "distributed/comm/meanings.h"
#include "distributed/parallel/gradient_meanings.h"

namespace megatron {

GradientReducer::GradientReducer(const ProcessGrid& grid, const ParameterStore& store, Shard shard)
    : grid_(grid), store_(store), shard_(shard), sums_(store.buckets().size()), not_started_(sums_.size()) {
  const std::vector<FlatRange> owned = store.owned_by(shard);
  // The groups by the parameters that they sum: norms of query and key heads, and under sequence parallelism all norms,
  // whole biases and the position table; keys and values of fewer groups than tensor ranks; tied tables.
  add_axis(grid.tensor(), kPartialGradients, owned,
           [](const Parameter& parameter) { return parameter.tensor == Placement::partial; });
  add_axis(grid.kv_replicas(), kSharedHeadGradients, owned,
           [](const Parameter& parameter) { return parameter.tensor == Placement::kv_replicated; });
  for (int i = 0; i < grid.ties(); ++i) {
    add_axis(grid.tie(i), kTiedGradients, owned, [i](const Parameter& parameter) { return parameter.tie == i; });
  }
}

template <class Selects>
void GradientReducer::add_axis(Communicator& group, const Partial& said, const std::vector<FlatRange>& owned,
                               const Selects& selects) {
  if (group.size() == 1) return;
  Axis& axis = axes_.emplace_back(Axis{.group = group, .said = said});
  for (const Parameter& parameter : store_.all()) {
    if (selects(parameter)) axis.add(store_, parameter, ParameterStore::parts_in(parameter, owned));
  }
}

void GradientReducer::Axis::add(const ParameterStore& store, const Parameter& parameter,
                                const std::vector<FlatRange>& parts) {
  const bool vector = parameter.global_shape.rank() == 1;
  if (vector) vector_elements += parameter.elements();
  std::vector<FlatRange>& ranges = vector ? vectors : matrices;
  for (const FlatRange& part : parts) {
    // Key and value lie side by side: one message. Parts of buckets lie apart where copies divide gradients.
    const bool apart = store.divides_gradients() && part.first == store.bucket_of(parameter).first;
    if (!ranges.empty() && ranges.back().end() == part.first && !apart) {
      ranges.back().count += part.count;
    } else {
      ranges.push_back(part);
    }
  }
}

void GradientReducer::reduce_from(int parameter) {
  while (not_started_ > 0 && store_.buckets()[not_started_ - 1].first_parameter >= parameter) {
    const std::size_t bucket = --not_started_;
    const Bucket& whole = store_.buckets()[bucket];
    if (whole.unit != kNone) continue;  // a GradientRing's
    const bool experts = whole.copies == CopyGroup::experts;
    const Tensor gradients = store_.made_gradients(whole);
    if (!has_parts(whole)) {
      sums_[bucket] = grid_.copies(whole.copies).start_all_reduce(gradients, experts ? kExpertGradients : kGradients);
      continue;
    }
    const FlatRange part = store_.part_of(bucket, shard_);
    sums_[bucket] = grid_.shards(whole.copies)
                        .start_reduce_scatter(gradients, store_.made_gradients(part),
                                              experts ? kDividedExpertGradients : kDividedGradients);
    if (grid_.replicas().size() == 1) continue;
    // The part of the bucket before has had this one's backward to arrive.
    sum_over_replicas();
    within_set_ = bucket;
  }
  grid_.copies().progress();  // moves every copy group: they share their transport
}

void GradientReducer::finish(Ops& ops, Arena& scratch) {
  reduce_from(0);
  sum_over_replicas();
  for (std::size_t i = sums_.size(); grid_.replicas().size() > 1 && i-- > 0;) {
    if (store_.buckets()[i].unit != kNone) start_over_replicas(i);
  }
  for (std::size_t i = sums_.size(); i-- > 0;) sums_[i].wait();
  not_started_ = sums_.size();
  const bool checked = grid_.world().checked();
  const std::vector<FlatRange> owned = checked ? store_.owned_by(shard_) : std::vector<FlatRange>();
  if (checked) expect_shares_of_gradients(grid_, store_, owned);
  sum_other_groups(ops, scratch);
  if (!checked) return;
  expect_whole_gradients(grid_, store_, owned);
  for (std::size_t i = 0; store_.sharded() && i < store_.buckets().size(); ++i) {
    const Bucket& bucket = store_.buckets()[i];
    if (!bucket.equal_parts) continue;
    const Tensor part = store_.gradients_of(store_.part_of(i, shard_));
    grid_.shards(bucket.copies).expects(part, bucket.copies == CopyGroup::experts ? kPartOfExpertSums : kPartOfSums);
    grid_.replicas().expects(part, kPartOfAllSets);
  }
}

void GradientReducer::sum_over_replicas() {
  if (!within_set_) return;
  sums_[*within_set_].wait();
  start_over_replicas(*within_set_);
  within_set_.reset();
}

void GradientReducer::start_over_replicas(std::size_t bucket) {
  sums_[bucket] = grid_.replicas().start_all_reduce(store_.gradients_of(store_.part_of(bucket, shard_)), kSumsOfSet);
}

void GradientReducer::sum_other_groups(Ops& ops, Arena& scratch) const {
  for (const Axis& axis : axes_) axis.sum(store_, ops, scratch);
}

void GradientReducer::Axis::sum(const ParameterStore& store, Ops& ops, Arena& scratch) const {
  for (const FlatRange& range : matrices) group.all_reduce(store.gradients_of(range), said);
  if (vector_elements == 0) return;
  const ArenaScope scope(scratch);
  const Tensor memory = scratch.allocate("packed partial gradients", {vector_elements}, DType::f32);
  std::int64_t elements = 0;
  for (const FlatRange& range : vectors) {
    ops.copy(store.gradients_of(range), memory.slice(0, elements, range.count));
    elements += range.count;
  }
  const Tensor packed = memory.slice(0, 0, elements);
  group.all_reduce(packed, said);
  std::int64_t first = 0;
  for (const FlatRange& range : vectors) {
    ops.copy(packed.slice(0, first, range.count), store.gradients_of(range));
    first += range.count;
  }
}

}  // namespace megatron

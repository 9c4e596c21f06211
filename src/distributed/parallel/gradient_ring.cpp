#include "distributed/parallel/gradient_ring.h"

#include <algorithm>

#include "distributed/comm/meanings.h"

namespace megatron {

GradientRing::GradientRing(const ProcessGrid& grid, const ParameterStore& store)
    : grid_(grid),
      store_(store),
      shard_(shard_at(grid.at(), grid.shape())),
      sums_(store.buckets().size()),
      in_flight_(std::min(store.layers().size(), ParameterStore::kRingBuffers)) {
  internal_check(store.divides_gradients(), "a ring of gradients that copies do not divide");
}

const DividedLayer& GradientRing::layer_of(int parameter) const {
  const int unit = store_.at(parameter).unit;
  internal_check(unit != kNone, "a parameter of no layer has no buffer of the ring", parameter);
  return store_.layers()[static_cast<std::size_t>(unit)];
}

void GradientRing::begin(int parameter, Ops& ops) {
  const DividedLayer& layer = layer_of(parameter);
  const auto unit = static_cast<std::size_t>(store_.at(parameter).unit);
  const DividedLayer*& before = in_flight_[unit % in_flight_.size()];
  if (before != nullptr) settle(*before, ops);
  before = nullptr;
  ops.fill(store_.gradients().slice(0, layer.whole, layer.count), 0);
}

void GradientRing::end(int parameter) {
  const DividedLayer& layer = layer_of(parameter);
  if (look_) return look_(layer);
  for (std::size_t i = layer.first_bucket + layer.buckets; i-- > layer.first_bucket;) {
    const Bucket& whole = store_.buckets()[i];
    sums_[i] =
        grid_.shards(whole.copies)
            .start_reduce_scatter(store_.made_gradients(whole), store_.made_gradients(store_.part_of(i, shard_)),
                                  whole.copies == CopyGroup::experts ? kDividedExpertGradients : kDividedGradients);
  }
  const auto unit = static_cast<std::size_t>(store_.at(parameter).unit);
  in_flight_[unit % in_flight_.size()] = &layer;
  grid_.copies().progress();  // moves every copy group: they share their transport
}

void GradientRing::settle(const DividedLayer& layer, Ops& ops) {
  for (std::size_t i = layer.first_bucket + layer.buckets; i-- > layer.first_bucket;) {
    sums_[i].wait();
    const FlatRange part = store_.part_of(i, shard_);
    ops.add(store_.made_gradients(part), store_.gradients_of(part));
  }
}

void GradientRing::finish(Ops& ops) {
  for (const DividedLayer*& layer : in_flight_) {
    if (layer != nullptr) settle(*layer, ops);
    layer = nullptr;
  }
}

}  // namespace megatron

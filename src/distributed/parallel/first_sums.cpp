#include "distributed/parallel/first_sums.h"

#include <algorithm>

namespace megatron {

FirstSums::FirstSums(const ParameterStore& store) : store_(store) {
  for (const Parameter& parameter : store.all()) {
    if (!parameter.from_products || store.divides_gradients()) continue;
    spared_.push_back({{parameter.first, parameter.elements()}, parameter.index});
  }
  std::sort(spared_.begin(), spared_.end(),
            [](const Spared& a, const Spared& b) { return a.range.first < b.range.first; });
  std::int64_t first = 0;
  const auto clear_until = [&](std::int64_t end) {
    if (end > first) cleared_.push_back({first, end - first});
  };
  for (const Spared& one : spared_) {
    clear_until(one.range.first);
    first = one.range.end();
  }
  clear_until(store.gradients().elements());
}

void FirstSums::begin(Ops& ops) {
  for (const FlatRange& range : cleared_) ops.fill(store_.gradients().slice(0, range.first, range.count), 0);
  for (Spared& one : spared_) one.waits = true;
}

void FirstSums::clear(Spared& one, Ops& ops) {
  if (one.waits) ops.fill(store_.gradients().slice(0, one.range.first, one.range.count), 0);
  one.waits = false;
}

bool FirstSums::take(ConstTensor gradient, Ops& ops) {
  const auto bytes =
      static_cast<const std::byte*>(gradient.data()) - static_cast<const std::byte*>(store_.gradients().data());
  const FlatRange range{bytes / static_cast<std::int64_t>(sizeof(float)), gradient.elements()};
  const auto begin = std::partition_point(spared_.begin(), spared_.end(),
                                          [&](const Spared& one) { return one.range.end() <= range.first; });
  auto end = begin;
  std::int64_t waiting = 0;
  for (; end != spared_.end() && end->range.first < range.end(); ++end) {
    if (end->waits && end->range.first >= range.first && end->range.end() <= range.end()) waiting += end->range.count;
  }
  const bool first = waiting == range.count && range.count > 0;
  for (auto one = begin; one != end; ++one) {
    if (first) one->waits = false;
    clear(*one, ops);
  }
  return first;
}

void FirstSums::finish_from(int parameter, Ops& ops) {
  for (Spared& one : spared_) {
    if (one.parameter >= parameter) clear(one, ops);
  }
}

}  // namespace megatron

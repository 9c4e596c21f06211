// Part of Optimizer: states and masters that are offloaded. They are those of the last parameters in the store's order,
// whose gradients are complete first; an update that needs a limited part of them at a time goes through them so.
#include <algorithm>
#include <limits>

#include "training/optimizer/optimizer.h"

namespace megatron {

// Whole parts of parameters, so that a checkpoint's slice lies in one memory.
std::int64_t Optimizer::find_offloaded_from(const std::vector<const Parameter*>& parameters,
                                            const std::vector<FlatRange>& owned, const OptimizerConfig& config) {
  std::int64_t from = std::numeric_limits<std::int64_t>::max(), elements = 0, offloaded = 0;
  if (config.offload == "none") return from;
  for (const FlatRange& range : owned) elements += range.count;
  const auto wanted = config.offload_fraction * static_cast<double>(elements);
  auto last = parameters.rbegin();
  for (auto range = owned.rbegin(); range != owned.rend(); ++range) {
    std::int64_t end = range->end();
    const auto take_from = [&](std::int64_t first) {
      if (static_cast<double>(offloaded) >= wanted || first >= end) return;
      offloaded += end - first;
      from = end = first;
    };
    while (last != parameters.rend() && (*last)->first >= end) ++last;
    for (auto one = last; one != parameters.rend() && (*one)->first + (*one)->elements() > range->first; ++one) {
      take_from(std::max((*one)->first, range->first));
    }
    take_from(range->first);
  }
  return from;
}

std::int64_t Optimizer::most_at_a_time(const FlatRange& range) const {
  const std::int64_t most = is_offloaded(range) && offloaded_ != nullptr ? offloaded_->elements_at_a_time() : 0;
  return most > 0 ? most : std::max<std::int64_t>(1, range.count);
}

void Optimizer::use(const FlatRange& range, const Tensor& value, const StateTensors& states) const {
  if (offloaded_ == nullptr || !is_offloaded(range)) return;
  if (value && has_master_copy()) offloaded_->use(value, OffloadedMemory::Access::write);
  for (const Tensor& state : states) {
    if (state) offloaded_->use(state, OffloadedMemory::Access::write);
  }
}

void Optimizer::rest() const {
  if (offloaded_ != nullptr) offloaded_->rest();
}

void Optimizer::by_masters(const FlatRange& range, OffloadedMemory::Access access,
                           const std::function<void(const FlatRange&)>& work) const {
  const std::int64_t border =
      has_master_copy() ? std::clamp(division_.offloaded_from, range.first, range.end()) : range.end();
  if (border > range.first) work({range.first, border - range.first});
  for (std::int64_t first = border; first < range.end();) {
    const FlatRange rest{first, range.end() - first};
    const FlatRange part{first, std::min(most_at_a_time(rest), rest.count)};
    offloaded_->use(master(part), access);
    work(part);
    first = part.end();
  }
}

// Sets the values of a range to its masters, rounded.
void Optimizer::set_values(const FlatRange& range) {
  if (!has_master_copy()) return;
  by_masters(range, OffloadedMemory::Access::read,
             [&](const FlatRange& part) { ops_.copy(master(part), store_.values_of(part)); });
}

}  // namespace megatron

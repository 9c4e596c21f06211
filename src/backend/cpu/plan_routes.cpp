#include <algorithm>

#include "backend/cpu/cpu_ops.h"
#include "backend/cpu/working_memory.h"
#include "backend/ops/expert_routing_shape.h"
#include "base/core/philox.h"

namespace megatron {

namespace {

/// Sorts the rows of a sample by the noise for their chosen expert, largest first; the low half of a key is the row.
/// Sorting all rows together also sorts the rows of each expert.
void sort_by_noise(const PlanRoutesShape& at, std::int64_t sample, std::int64_t choice, std::uint64_t* keys) {
  const auto global_sample = static_cast<std::uint32_t>(at.first_sample + sample);
  for (std::int64_t i = 0; i < at.sequence; ++i) {
    const auto expert = static_cast<std::uint32_t>(at.chosen[at.entry(i, sample, choice)]),
               position = static_cast<std::uint32_t>(at.positions[i]);
    const std::uint32_t noise = philox4x32<7>({expert, position, 0, global_sample}, at.key)[0];
    keys[i] = std::uint64_t{~noise} << 32 | static_cast<std::uint64_t>(i);
  }
  std::sort(keys, keys + at.sequence);
}

/// keys: [sequence], or null for rows in order.
void plan_sample(const PlanRoutesShape& at, std::int64_t sample, std::uint64_t* keys) {
  std::int32_t* counts = at.counts + sample * at.layout.experts;
  std::fill_n(counts, at.layout.experts, 0);
  for (std::int64_t choice = 0; choice < at.top_k; ++choice) {
    if (keys != nullptr) sort_by_noise(at, sample, choice, keys);
    for (std::int64_t i = 0; i < at.sequence; ++i) {
      const std::int64_t position = keys == nullptr ? i : static_cast<std::int64_t>(keys[i] & 0xFFFFFFFFu);
      const std::int64_t entry = at.entry(position, sample, choice);
      const std::int32_t expert = at.chosen[entry];
      const std::int32_t slot = at.is_expert(expert) ? at.slot(expert, counts[expert]++, sample) : -1;
      at.set_slot(entry, slot);
    }
  }
}

}  // namespace

std::size_t plan_routes_bytes(const PlanRoutesArgs& args) {
  if (!args.order.random) return 0;
  return static_cast<std::size_t>(args.chosen.dim(0) * args.chosen.dim(1)) * sizeof(std::uint64_t);
}

void CpuOps::plan_routes(const PlanRoutesArgs& args) {
  const PlanRoutesShape at(args);
  const std::int64_t slot_count = at.entries == nullptr ? 0 : at.layout.count(at.samples);
  team_.elements(slot_count,
                 [&](std::int64_t first, std::int64_t last) { std::fill(at.entries + first, at.entries + last, -1); });
  const std::size_t bytes = plan_routes_bytes(args);
  auto* keys = bytes == 0 ? nullptr : reinterpret_cast<std::uint64_t*>(scratch(bytes));
  team_.rows(at.samples, at.sequence * at.top_k, [&](std::int64_t first, std::int64_t last) {
    for (std::int64_t sample = first; sample < last; ++sample) {
      plan_sample(at, sample, keys == nullptr ? nullptr : keys + sample * at.sequence);
    }
  });
}

}  // namespace megatron

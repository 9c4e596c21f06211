#include <algorithm>

#include "backend/cpu/cpu_ops.h"
#include "backend/ops/expert_routing_shape.h"

namespace megatron {

void CpuOps::tally_routes(const TallyRoutesArgs& args) {
  const TallyRoutesShape at(args);
  std::int64_t dropped = 0;
  for (std::int64_t i = 0; i < at.samples * at.experts; ++i) {
    at.choices[i % at.experts] += at.counts[i];
    dropped += at.dropped(at.counts[i]);
  }
  at.choices[at.experts] += static_cast<double>(dropped);
  // No simd reduction: Clang's begins at the largest finite number, and the minimum of no gaps must be infinite.
  float least = std::numeric_limits<float>::infinity();
  for (std::int64_t i = 0; i < at.rows; ++i) least = at.gaps[i] < least ? at.gaps[i] : least;
  *at.least_gap = std::min(*at.least_gap, double{least});
}

void CpuOps::shift_choice_bias(const ShiftChoiceBiasArgs& args) {
  const ShiftChoiceBiasShape at(args);
  double sum = 0;
  for (std::int64_t expert = 0; expert < at.experts; ++expert) sum += at.choices[expert];
  for (std::int64_t expert = 0; expert < at.experts; ++expert) at.bias[expert] += at.shift(expert, sum);
}

}  // namespace megatron

#include "training/optimizer/muon.h"

#include <algorithm>
#include <cmath>

namespace megatron {

double muon_scale_factor(MuonScale scale, std::int64_t rows, std::int64_t columns) {
  const auto out = static_cast<double>(rows), in = static_cast<double>(columns);
  switch (scale) {
    case MuonScale::spectral: return std::sqrt(std::max(1.0, out / in));
    case MuonScale::match_adam_rms: return 0.2 * std::sqrt(std::max(out, in));
  }
  return 0;
}

// Descending at a negative rate adds: the first verb moves m and adds its part to a direction of 0, the second adds the
// gradient's.
void find_muon_direction(Ops& ops, Arena& scratch, const MuonMomentum& momentum, const MuonGradient& part,
                         Tensor direction) {
  const ArenaScope scope(scratch);
  const Tensor factor = scratch.allocate("Muon gradient factor", {1}, DType::f32);
  ops.copy(part.clip_factor, factor);
  ops.scale(factor, 1 - momentum.momentum);
  ops.fill(direction, 0);
  const auto beta = static_cast<float>(momentum.momentum);
  ops.sgd({.value = direction,
           .gradient = part.gradient,
           .m = part.m,
           .draws = part.draws,
           .clip_factor = factor,
           .skip = part.skip,
           .learning_rate = momentum.nesterov ? -beta : -1.0f,
           .momentum = beta});
  if (!momentum.nesterov) return;
  ops.sgd({.value = direction,
           .gradient = part.gradient,
           .m = {},
           .clip_factor = factor,
           .skip = part.skip,
           .learning_rate = -1});
}

void apply_muon(Ops& ops, Arena& scratch, double scale, const MuonStep& step) {
  const ArenaScope scope(scratch);
  const Tensor factor = scratch.allocate("Muon scale", {1}, DType::f32);
  ops.fill(factor, scale);
  ops.sgd({.value = step.value,
           .gradient = step.update,
           .m = {},
           .clip_factor = factor,
           .skip = step.skip,
           .learning_rate = step.learning_rate,
           .weight_decay = step.weight_decay});
}

}  // namespace megatron

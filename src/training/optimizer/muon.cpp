#include "training/optimizer/muon.h"

#include <algorithm>
#include <cmath>

#include "backend/ops/counting_ops.h"
#include "training/optimizer/newton_schulz.h"

namespace megatron {

MuonScale muon_scale(const std::string& name) {
  std::string names;
  for (const MuonScaleRow& row : kMuonScales) {
    if (name == row.name) return row.scale;
    names += fmt::format("{}\"{}\"", names.empty() ? "" : " or ", row.name);
  }
  fail(ErrorKind::configuration, "the scale \"{}\" of Muon's updates is not available: use {}", name, names);
}

double muon_scale_factor(MuonScale scale, std::int64_t rows, std::int64_t columns) {
  const auto out = static_cast<double>(rows), in = static_cast<double>(columns);
  switch (scale) {
    case MuonScale::spectral: return std::sqrt(std::max(1.0, out / in));
    case MuonScale::match_adam_rms: return 0.2 * std::sqrt(std::max(out, in));
  }
  return 0;
}

namespace {

/// Updates m and sets `direction` to u. Descending at a negative rate adds: the first verb moves m and adds its part
/// to a direction of 0, the second adds the gradient's.
void find_direction(Ops& ops, Arena& scratch, const MuonSettings& settings, const MuonStep& step,
                    const MuonMatrix& matrix, Tensor direction) {
  const ArenaScope scope(scratch);
  const Tensor factor = scratch.allocate("Muon gradient factor", {1}, DType::f32);
  ops.copy(step.clip_factor, factor);
  ops.scale(factor, 1 - settings.momentum);
  ops.fill(direction, 0);
  const auto momentum = static_cast<float>(settings.momentum);
  ops.sgd({.value = direction,
           .gradient = matrix.gradient,
           .m = matrix.m,
           .clip_factor = factor,
           .skip = step.skip,
           .learning_rate = settings.nesterov ? -momentum : -1.0f,
           .momentum = momentum});
  if (!settings.nesterov) return;
  ops.sgd({.value = direction,
           .gradient = matrix.gradient,
           .m = {},
           .clip_factor = factor,
           .skip = step.skip,
           .learning_rate = -1});
}

}  // namespace

void update_muon(Ops& ops, Arena& scratch, const MuonSettings& settings, const MuonStep& step,
                 const MuonMatrix& matrix) {
  const Shape& shape = matrix.value.shape();
  internal_check(
      shape.rank() == 2 && shape.elements() > 0 && matrix.gradient.shape() == shape && matrix.m.shape() == shape,
      "Muon updates whole matrices", shape, matrix.gradient.shape(), matrix.m.shape());
  const ArenaScope scope(scratch);
  const Tensor direction = scratch.allocate("Muon direction", shape, DType::f32);
  const Tensor update = scratch.allocate("Muon update", shape, DType::f32);
  find_direction(ops, scratch, settings, step, matrix, direction);
  orthogonalize(ops, scratch, direction, update);
  const Tensor factor = scratch.allocate("Muon scale", {1}, DType::f32);
  ops.fill(factor, muon_scale_factor(settings.scale, shape[0], shape[1]));
  ops.sgd({.value = matrix.value,
           .gradient = update,
           .m = {},
           .clip_factor = factor,
           .skip = step.skip,
           .learning_rate = static_cast<float>(step.learning_rate),
           .weight_decay = static_cast<float>(step.weight_decay)});
}

std::size_t muon_workspace_bytes(std::int64_t rows, std::int64_t columns) {
  CountingOps ops;
  Arena tensors("Muon tensors"), scratch("Muon scratch");
  const Tensor matrix = tensors.allocate("matrix", {rows, columns}, DType::f32);
  const Tensor number = tensors.allocate("number", {1}, DType::f32);
  update_muon(ops, scratch, {}, {.clip_factor = number, .skip = number},
              {.value = matrix, .gradient = matrix, .m = matrix});
  return scratch.high_water();
}

double muon_flops(std::int64_t rows, std::int64_t columns) {
  return orthogonalize_flops(rows, columns);
}

}  // namespace megatron

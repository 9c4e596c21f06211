// Muon (Jordan et al. 2024): the update of a matrix along its momentum, made about orthogonal. What comes before and
// after orthogonalize() (newton_schulz.h), element by element: for any part of the matrix. Everything runs on the
// device and nothing is allocated. Knows matrices; the caller knows which parameters are some, and brings together
// those that are cut over ranks.
#pragma once

#include "backend/ops/ops.h"
#include "backend/tensor/memory.h"
#include "config/schema/choices.h"

namespace megatron {

/// The factor of the orthogonal update of a weight [rows, columns].
double muon_scale_factor(MuonScale scale, std::int64_t rows, std::int64_t columns);

struct MuonMomentum {
  double momentum = 0.95;
  bool nesterov = true;
};

/// Any part of a matrix. All f32, of one shape; m may be bf16.
struct MuonGradient {
  ConstTensor gradient;
  Tensor m;                 ///< its momentum, from 0; absent where momentum is 0
  StateDraws draws = {};    ///< used for m in bf16
  ConstTensor clip_factor;  ///< f32 [1]
  ConstTensor skip;         ///< f32 [1]: where it is not 0, m stays as it is, whatever the gradient is
};

/// g = clip_factor · gradient; m = momentum · m + (1 - momentum) · g; direction = m, with Nesterov's look ahead
/// momentum · m + (1 - momentum) · g. direction: f32 of the gradient's shape, not the gradient itself.
void find_muon_direction(Ops& ops, Arena& scratch, const MuonMomentum& momentum, const MuonGradient& part,
                         Tensor direction);

/// Any part of a matrix. Both f32, of one shape.
struct MuonStep {
  Tensor value;        ///< the master copy where values are 16-bit
  ConstTensor update;  ///< this part of orthogonalize(direction)
  ConstTensor skip;    ///< f32 [1]: where it is not 0, value stays as it is, whatever the update is
  float learning_rate = 0, weight_decay = 0;
};

/// value = (1 - learning_rate · weight_decay) · value - learning_rate · scale · update.
void apply_muon(Ops& ops, Arena& scratch, double scale, const MuonStep& step);

}  // namespace megatron

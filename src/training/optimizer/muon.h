// Muon (Jordan et al. 2024): the update of one whole matrix along its momentum, made about orthogonal. Everything runs
// on the device and nothing is allocated. Knows matrices; the caller knows which parameters are some, and brings
// together those that are cut over ranks.
#pragma once

#include <array>
#include <cstddef>
#include <string>
#include <string_view>

#include "backend/ops/ops.h"
#include "backend/tensor/memory.h"

namespace megatron {

/// The factor of an orthogonal update of a weight [rows, columns], which is [out, in].
enum class MuonScale {
  spectral,        ///< sqrt(max(1, rows / columns)) (Jordan et al. 2024)
  match_adam_rms,  ///< 0.2 · sqrt(max(rows, columns)), so that learning rates of AdamW fit (Liu et al. 2025)
};

struct MuonScaleRow {
  MuonScale scale;
  std::string_view name;  ///< in input files
};

inline constexpr std::array kMuonScales{
    MuonScaleRow{MuonScale::spectral, "spectral"},
    MuonScaleRow{MuonScale::match_adam_rms, "match_adam_rms"},
};

/// The scale with the input file's name. Errors: configuration.
MuonScale muon_scale(const std::string& name);
double muon_scale_factor(MuonScale scale, std::int64_t rows, std::int64_t columns);

struct MuonSettings {
  double momentum = 0.95;
  bool nesterov = true;
  MuonScale scale = MuonScale::spectral;
};

/// One matrix [rows, columns], as its layer sees it: [out, in], whole, whatever the layout cuts it into. All f32.
struct MuonMatrix {
  Tensor value;  ///< the master copy where values are 16-bit
  ConstTensor gradient;
  Tensor m;  ///< its momentum, from 0
};

/// Numbers of a step, for all its matrices.
struct MuonStep {
  ConstTensor clip_factor;  ///< f32 [1]
  ConstTensor skip;         ///< f32 [1]: where it is not 0, value and m stay as they are, whatever the gradient is
  double learning_rate = 0, weight_decay = 0;
};

/// g = clip_factor · gradient; m = momentum · m + (1 - momentum) · g; u = m, with Nesterov's look ahead
/// momentum · m + (1 - momentum) · g; value = (1 - learning_rate · weight_decay) · value - learning_rate · scale ·
/// orthogonalize(u). `scratch` needs muon_workspace_bytes() for the time of the call.
void update_muon(Ops& ops, Arena& scratch, const MuonSettings& settings, const MuonStep& step,
                 const MuonMatrix& matrix);

/// Bytes of scratch for a matrix. Workspace of verbs is not in it.
std::size_t muon_workspace_bytes(std::int64_t rows, std::int64_t columns);
/// Floating-point operations of the matrix products of an update; elementwise work is not counted.
double muon_flops(std::int64_t rows, std::int64_t columns);

}  // namespace megatron

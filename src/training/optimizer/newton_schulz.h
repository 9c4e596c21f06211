// The nearest matrix with orthonormal rows or columns, about: five steps of a quintic Newton–Schulz iteration, with
// the coefficients of Jordan et al. 2024 (https://kellerjordan.github.io/posts/muon). All on the device, in f32: the
// order of additions is that of Ops::matmul, so equal matrices give equal bits on every rank.
#pragma once

#include "backend/ops/ops.h"
#include "backend/tensor/memory.h"

namespace megatron {

inline constexpr int kNewtonSchulzSteps = 5;
inline constexpr double kNewtonSchulzA = 3.4445, kNewtonSchulzB = -4.7750, kNewtonSchulzC = 2.0315;
inline constexpr float kNewtonSchulzEpsilon = 1e-7f;

/// Sets y to x / (‖x‖ + epsilon), in the Frobenius norm, after the steps X ← aX + (bA + cA²)X with A = XXᵀ, or
/// X ← aX + X(bA + cA²) with A = XᵀX where there are more rows than columns (the transpose's iteration). The singular
/// vectors are those of x; singular values from 1 % of the norm on become 0.68 to 1.14, 0 stays 0. x is worked in.
/// x, y: f32 [rows, columns], contiguous. `scratch` holds the small square matrices for the time of the call.
void orthogonalize(Ops& ops, Arena& scratch, Tensor x, Tensor y);
/// Floating-point operations of its products: 5 · (4s²l + 2s³), with s the smaller and l the larger extent.
double orthogonalize_flops(const Shape& shape);

}  // namespace megatron

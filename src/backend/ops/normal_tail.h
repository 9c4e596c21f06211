// The tail of the normal distribution, for the exact GELU on every backend.
#pragma once

namespace megatron {

inline constexpr float kNormalTailScale = 0.35f;

/// P(Z > z) · exp(z² / 2) of a standard normal Z, for z >= 0, by t = 1 / (1 + kNormalTailScale · z): a polynomial of
/// relative error 3e-8 (Remez), 3e-7 with single precision's own.
constexpr float scaled_normal_tail(float t) {
  float p = -0.029145943f;
  p = p * t + 0.14397176f;
  p = p * t - 0.25571436f;
  p = p * t + 0.15917425f;
  p = p * t - 0.023109883f;
  p = p * t + 0.10550802f;
  p = p * t + 0.119832866f;
  p = p * t + 0.13986187f;
  p = p * t + 0.1396214f;
  return p * t;
}

}  // namespace megatron

// The learning rate as a pure function of samples: no state, so that resuming, or training in other batches, needs
// nothing restored. (Or of tokens, if all its lengths are in tokens: where samples grow, the caller may count those.)
//
// `at(n)` takes the samples consumed *including the batch being applied*: the update that applies samples [a, a + B)
// uses at(a + B), so that the first update's rate is not zero.
#pragma once

#include <cstdint>
#include <string>

namespace megatron {

enum class DecayStyle { cosine, linear, constant, inverse_square_root, warmup_stable_decay };
enum class WsdStyle { linear, cosine, exponential, minus_square_root };

/// The style with the input file's name ("cosine", "linear", "constant", "inverse_sqrt", "wsd").
/// Errors: configuration, for a name that is unknown.
DecayStyle decay_style(const std::string& name);
/// ("linear", "cosine", "exponential", "minus_sqrt").
WsdStyle wsd_style(const std::string& name);

/// n ≤ W (warm-up, W > 0): peak · n / W, from zero whatever the minimum. After it, with r = (n − W) / (D − W):
///   cosine               minimum + (peak − minimum) · (1 + cos πr) / 2
///   linear               minimum + (peak − minimum) · (1 − r)
///   inverse square root  max(minimum, peak · √(max(W, 1) / n))
///   warmup-stable-decay  the peak until n = D − A; then minimum + (peak − minimum) · c, with r = (n − (D − A)) / A and
///                        c = 1 − r (linear), (1 + cos πr) / 2 (cosine), 2 · 0.5^r − 1 (exponential) or 1 − √r
/// and the minimum for n > D; constant stays at the peak for ever.
struct LearningRate {
  double peak = 0, minimum = 0;
  std::int64_t warmup_length = 0;  ///< W
  std::int64_t decay_length = 0;   ///< D, counted from the run's beginning, warm-up included
  DecayStyle style = DecayStyle::cosine;
  std::int64_t wsd_decay_length = 0;  ///< A, at most D − W
  WsdStyle wsd_style = WsdStyle::exponential;

  double at(std::int64_t consumed) const;
};

}  // namespace megatron

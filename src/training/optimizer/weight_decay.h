// The weight decay as a pure function of samples, like the learning rate (learning_rate.h): `at(n)` takes the samples
// consumed including the batch being applied.
#pragma once

#include <cstdint>
#include <string>

namespace megatron {

enum class WeightDecayStyle { constant, linear, cosine };

/// The style with the input file's name ("constant", "linear", "cosine").
/// Errors: configuration, for a name that is unknown.
WeightDecayStyle weight_decay_style(const std::string& name);

/// start + (end − start) · c, with c = n / N (linear) or (1 + cos π(1 − n/N)) / 2 (cosine); the end for n ≥ N.
/// Constant: the start for ever.
struct WeightDecay {
  double start = 0, end = 0;
  std::int64_t run_samples = 0;  ///< N
  WeightDecayStyle style = WeightDecayStyle::constant;

  double at(std::int64_t samples) const;
};

}  // namespace megatron
